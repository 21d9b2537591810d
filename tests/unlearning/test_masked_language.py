import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.training import MaskedSentences
from ruler.unlearning import METHODS, unlearn
from ruler.unlearning.method import compute_divergence, make_random_teacher

pytestmark = pytest.mark.usefixtures("one_thread")
MASK, VOCABULARY = 3, 40


class Guesser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 8)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, VOCABULARY)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words = self.words(input_ids) * attention_mask[:, :, None]
        return self.head(self.norm(words + words.mean(dim=1, keepdim=True)))


def make_sentences(n: int, seed: int) -> MaskedSentences:
    ids = torch.randint(4, VOCABULARY, (n, 12), generator=torch.Generator().manual_seed(seed))
    return MaskedSentences(ids, torch.ones_like(ids), mask_id=MASK, special_ids=(0, 1), vocab_size=VOCABULARY)


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("batch_size", [8, None])
def test_every_method_unlearns_sentences_and_repeats(method: str, batch_size: int | None) -> None:
    torch.manual_seed(0)
    model = Guesser()
    forget, retain = make_sentences(10, 1), make_sentences(30, 2)
    settings = METHODS[method].settings(epochs=2, batch_size=batch_size, records_per_epoch=20)
    first, again = (unlearn(method, model, forget=forget, retain=retain, settings=settings) for _ in "ab")
    assert torch.equal(flatten(first), flatten(again))
    assert 0 < (flatten(first) - flatten(model)).abs().max() < 0.05


def test_the_divergence_of_tokens_is_the_mean_over_those_asked_for() -> None:
    student, teacher = torch.randn(3, 5, 7), torch.randn(3, 5, 7)
    labels = torch.randint(0, 7, (3, 5))
    labels[0], labels[2, 1:] = -100, -100
    is_asked = labels != -100
    expected = compute_divergence(student[is_asked], teacher[is_asked], 2.0)
    torch.testing.assert_close(compute_divergence(student, teacher, 2.0, labels=labels), expected)
    assert compute_divergence(student, teacher, 2.0, labels=torch.full((3, 5), -100)).item() == 0


def test_a_random_bert_is_drawn_by_its_own_rule_and_knows_nothing() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    torch.manual_seed(0)
    model = transformers.BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    before = copy.deepcopy(model.state_dict())
    teacher, again = (make_random_teacher(model, 5) for _ in "ab")
    torch.testing.assert_close(dict(model.state_dict()), dict(before), atol=0, rtol=0)
    torch.testing.assert_close(teacher.state_dict(), again.state_dict(), atol=0, rtol=0)
    for name, value in teacher.named_parameters():
        is_drawn = value.ndim == 2 or "LayerNorm.weight" in name
        assert value.std() == pytest.approx(0.02, abs=0.004) if value.ndim == 2 else value.unique().numel() == 1, name
        assert is_drawn or (value == 0).all(), name
    assert teacher.cls.predictions.decoder.weight is teacher.bert.embeddings.word_embeddings.weight
    ids = torch.arange(20)[None]
    probability = functional.softmax(teacher(input_ids=ids).logits, dim=-1)
    assert probability.max() < 0.05
