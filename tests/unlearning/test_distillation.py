import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.models.ft_transformer import FTTransformer
from ruler.models.resnet18 import ResNet18
from ruler.models.small_cnn import SmallCNN
from ruler.models.tabular_mlp import TabularMLP
from ruler.unlearning.distillation import compute_divergence, make_random_teacher

pytestmark = pytest.mark.usefixtures("one_thread")


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


def test_a_random_tabular_teacher_is_a_freshly_built_one() -> None:
    teacher = make_random_teacher(TabularMLP(4), 101)
    torch.manual_seed(101)
    assert torch.equal(flatten(teacher), flatten(TabularMLP(4)))
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert not teacher.training


def test_a_random_teacher_forgets_attention_norms_and_bare_parameters() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token = nn.Parameter(torch.arange(50.0))
            self.attention = nn.MultiheadAttention(4, 2)
            self.norm = nn.BatchNorm1d(4)

    model = Odd()
    model.norm.running_mean += 5
    teacher = make_random_teacher(model, 0)
    assert torch.equal(teacher.token.sort().values, model.token.detach())
    assert not torch.equal(teacher.token, model.token)
    assert not torch.equal(teacher.attention.in_proj_weight, model.attention.in_proj_weight)
    assert not torch.equal(teacher.attention.out_proj.weight, model.attention.out_proj.weight)
    assert torch.equal(teacher.norm.running_mean, torch.zeros(4))
    torch.testing.assert_close(make_random_teacher(model, 0).state_dict(), teacher.state_dict(), atol=0, rtol=0)


@pytest.mark.parametrize("model", [ResNet18(n_classes=4), SmallCNN(n_classes=4)])
def test_a_random_image_teacher_is_unlike_its_model_and_answers_within_reason(model: nn.Module) -> None:
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.train()
    with torch.no_grad():
        model(images + 3)  # moves the running statistics
    teacher = make_random_teacher(model, 3)
    logits = teacher(images)
    assert logits.isfinite().all()
    assert functional.softmax(logits, dim=1).max() < 0.9
    for name, value in teacher.named_parameters():
        if value.ndim > 1:
            assert not torch.equal(value, dict(model.named_parameters())[name]), name
    for name, value in teacher.named_buffers():
        assert name.endswith("num_batches_tracked") or value.unique().numel() == 1, name


def test_a_random_transformer_of_tables_forgets_its_tokens() -> None:
    torch.manual_seed(0)
    model = FTTransformer(4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    teacher = make_random_teacher(model, 3)
    for name, value in teacher.named_parameters():
        assert not torch.equal(value, dict(model.named_parameters())[name]), name
    assert teacher(torch.randn(5, 4)).isfinite().all()


def test_divergence_is_that_of_distributions_at_temperature_two() -> None:
    student, teacher = torch.randn(5, 3), torch.randn(5, 3)
    p, q = (functional.softmax(logits / 2, dim=1) for logits in (teacher, student))
    expected = (p * (p.log() - q.log())).sum(dim=1).mean()
    torch.testing.assert_close(compute_divergence(student, teacher, 2.0), expected)


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
