from typing import Any

import pytest
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.training.batches import Batches
from ruler.training.loop import optimize
from ruler.training.sentences import MaskedSentences, locate_asked
from ruler.training.settings import TrainingSettings
from ruler.training.steps import compute_label_loss, compute_logits, cross_entropy

CLS, SEP, PAD, MASK, VOCABULARY = 1, 2, 0, 3, 1000


def make_sentences(n: int = 400, length: int = 20, share: float = 0.15) -> MaskedSentences:
    ids = torch.randint(4, VOCABULARY, (n, length), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -4], ids[:, -3:] = CLS, SEP, PAD
    return MaskedSentences(
        ids, ids != PAD, mask_id=MASK, special_ids=(CLS, SEP, PAD), vocab_size=VOCABULARY, share=share
    )


class Guesser(nn.Module):
    """Guesses each token from itself and from the mean of its sentence."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, 8)
        self.head = nn.Linear(8, vocabulary)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        words = self.words(input_ids) * attention_mask[:, :, None]
        return self.head(words + words.mean(dim=1, keepdim=True))


class Wrapped(nn.Module):
    """Has a whole model where transformers has a trunk, as adapters do."""

    def __init__(self) -> None:
        super().__init__()
        self.base_model = Guesser()

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.base_model(**inputs)
        return scores


def test_asked_tokens_are_masked_replaced_and_kept_in_their_shares() -> None:
    sentences = make_sentences(n=4000)
    inputs, few = sentences.draw(torch.arange(4000), torch.Generator().manual_seed(1))
    ids = sentences.input_ids
    labels = torch.full_like(ids, -100).scatter(1, inputs["asked"], few)
    is_asked, is_word = labels != -100, (ids != CLS) & (ids != SEP) & (ids != PAD)
    assert not (is_asked & ~is_word).any()
    assert torch.equal(labels[is_asked], ids[is_asked])
    assert torch.equal(inputs["input_ids"][~is_asked], ids[~is_asked])
    assert torch.equal(inputs["attention_mask"], (ids != PAD).long())
    n_asked = is_asked.sum().item()
    shown = inputs["input_ids"][is_asked]
    assert n_asked / is_word.sum().item() == pytest.approx(0.15, abs=0.01)
    assert (shown == MASK).sum().item() / n_asked == pytest.approx(0.8, abs=0.02)
    assert (shown == ids[is_asked]).sum().item() / n_asked == pytest.approx(0.1, abs=0.015)


def test_places_hold_every_asked_token_once_and_in_order() -> None:
    is_asked = torch.rand((50, 20), generator=torch.Generator().manual_seed(0)) < 0.4
    labels = torch.arange(1000).reshape(50, 20).where(is_asked, -100)
    places, few = locate_asked(labels)
    assert places.shape == few.shape == (50, 16)  # the most that any sentence is asked for, rounded up to eights
    assert is_asked.sum(1).max() in range(9, 17)
    for sentence, chosen, asked in zip(labels, places, few, strict=True):
        assert len(set(chosen.tolist())) == 16
        assert torch.equal(asked[asked != -100], sentence[sentence != -100])
        assert torch.equal(sentence[chosen], asked)
    assert locate_asked(torch.full((2, 5), -100))[1].tolist() == [[-100] * 5] * 2


def test_draws_of_one_source_never_shrink() -> None:
    sentences = make_sentences(400, length=40, share=0.3)
    generator = torch.Generator().manual_seed(0)
    n_places = [sentences.draw(torch.arange(n), generator)[1].shape[1] for n in (1, 400, 1, 10)]
    assert n_places[0] < n_places[1] == n_places[2] == n_places[3]


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "DistilBert", "Guesser", "Wrapped", "Decorated"])
def test_scores_of_asked_tokens_are_those_of_all_tokens_at_their_places(kind: str) -> None:
    model = make_language_model(kind)
    inputs, _ = make_sentences(12).draw(torch.arange(12), torch.Generator().manual_seed(1))
    places = inputs["asked"]
    seen = {name: value for name, value in inputs.items() if name != "asked"}
    everything, asked = compute_logits(model, seen), compute_logits(model, inputs)
    assert asked.shape == (*places.shape, VOCABULARY)
    torch.testing.assert_close(asked, everything.gather(1, places[:, :, None].expand(-1, -1, VOCABULARY)))
    torch.testing.assert_close(compute_logits(model, seen), everything, atol=0, rtol=0)  # nothing stays behind


@pytest.mark.parametrize("kind", ["Bert", "Guesser"])
def test_gradients_of_asked_tokens_are_those_of_all_tokens(kind: str) -> None:
    model = make_language_model(kind)
    inputs, labels = make_sentences(12).draw(torch.arange(12), torch.Generator().manual_seed(1))
    seen = {name: value for name, value in inputs.items() if name != "asked"}
    everything = torch.full_like(seen["input_ids"], -100).scatter(1, inputs["asked"], labels)
    gradients = []
    for batch in ((inputs, labels), (seen, everything)):
        model.zero_grad()
        cross_entropy(model, batch).backward()  # type: ignore[no-untyped-call]
        gradients.append([value.grad.clone() for value in model.parameters() if value.grad is not None])
    torch.testing.assert_close(*gradients)


def make_language_model(kind: str) -> nn.Module:
    torch.manual_seed(0)
    if kind == "Guesser":
        return Guesser()
    if kind == "Wrapped":
        return Wrapped()
    if kind == "Decorated":
        decorated = Guesser()
        decorated.base_model = nn.Linear(1, 1)  # a part of that name, which the scores do not pass through
        return decorated
    transformers = pytest.importorskip("transformers")
    size = {
        "Bert": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
        "Roberta": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32},
        "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    }[kind]
    config = getattr(transformers, f"{kind}Config")(vocab_size=VOCABULARY, **size)
    model: nn.Module = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
    return model


def test_every_draw_masks_anew_and_a_seed_repeats_it() -> None:
    sentences = make_sentences()
    batches, again = (Batches(sentences, Guesser(), batch_size=64, seed=5) for _ in "ab")
    first, second = (torch.cat([labels for _, labels in batches]) for _ in "ab")
    assert not torch.equal(first.sort(dim=0).values, second.sort(dim=0).values)
    assert torch.equal(torch.cat([labels for _, labels in again]), first)
    whole = Batches(sentences, Guesser(), seed=5)
    assert not torch.equal(next(iter(whole))[1], next(iter(whole))[1])


def test_the_loss_is_the_mean_over_asked_tokens() -> None:
    logits = torch.randn(3, 5, 7)
    labels = torch.randint(0, 7, (3, 5))
    labels[0], labels[1, 2:] = -100, -100
    is_asked = labels != -100
    expected = nn.functional.cross_entropy(logits[is_asked], labels[is_asked])
    torch.testing.assert_close(compute_label_loss(logits, labels), expected)
    assert compute_label_loss(logits, torch.full((3, 5), -100)).item() == 0


def test_a_masked_language_model_learns() -> None:
    torch.manual_seed(0)
    ids = torch.arange(4, 54).reshape(10, 5)  # every sentence has words of its own
    sentences = MaskedSentences(ids, torch.ones_like(ids), mask_id=MASK, special_ids=(), vocab_size=60)
    settings = TrainingSettings(epochs=40, batch_size=5, learning_rate=0.05, optimizer="adamw")
    losses = optimize(Guesser(60), cross_entropy, {"data": sentences}, settings)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_mask": torch.ones(2, 3)}, r"must both be \(n, t\) .* got \(2, 4\) and \(2, 3\)"),
        ({"input_ids": torch.ones(0, 4)}, "at least one sentence"),
        ({"share": 0.0}, "share must be a finite number above 0"),
        ({"share": 1.5}, "share must be at most 1; got 1.5"),
        ({"vocab_size": 3}, "below vocab_size, 3; got 1 to 1 and 3"),
        ({"input_ids": -torch.ones(2, 4)}, "got -1 to -1 and 3"),
    ],
)
def test_unfit_sentences_are_named(change: dict[str, Any], message: str) -> None:
    options = {"input_ids": torch.ones(2, 4), "attention_mask": torch.ones(2, 4), "vocab_size": 9, "share": 0.15}
    with pytest.raises(InputError, match=message):
        MaskedSentences(mask_id=3, special_ids=(), **(options | change))
