"""What holds for every architecture: shapes, the layer that `embed` finds, a graph without surprises, determinism."""

import numpy as np
import pytest
import torch
from torch import nn

from ruler import embed
from ruler.core.errors import InputError, UnknownNameError
from ruler.models import MODELS
from ruler.models.ft_transformer import FTTransformer
from ruler.models.language_models import load_masked_language_model
from ruler.models.residual_mlp import ResidualMLP
from ruler.models.resnet18 import ResNet18
from ruler.models.small_cnn import SmallCNN
from ruler.models.tabular_mlp import TabularMLP

SHAPES = {
    "tabular_mlp": ((9,), 128),
    "residual_mlp": ((9,), 128),
    "ft_transformer": ((9,), 128),
    "small_cnn": ((3, 16, 12), 256),
    "resnet18": ((3, 16, 12), 512),
}
everywhere = pytest.mark.parametrize("name", list(MODELS))


def build(name: str, n_classes: int = 5) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(3)
    model = MODELS[name](SHAPES[name][0], n_classes)
    return model, torch.randn(6, *SHAPES[name][0])


def test_every_architecture_is_covered_and_built_as_itself() -> None:
    assert set(MODELS) == set(SHAPES)
    kinds = {name: type(build(name)[0]) for name in MODELS}
    assert list(kinds.values()) == [TabularMLP, ResidualMLP, FTTransformer, SmallCNN, ResNet18]


@everywhere
def test_embed_finds_the_papers_layer(name: str) -> None:
    model, records = build(name)
    embeddings = embed(model, records)
    model.eval()
    with torch.no_grad():
        representation = model.penultimate(records)
    assert embeddings.shape == (6, SHAPES[name][1])
    np.testing.assert_array_equal(embeddings.values, representation.numpy())


@everywhere
def test_the_last_linear_makes_the_logits_of_the_representation(name: str) -> None:
    model, records = build(name)
    model.eval()
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        assert torch.equal(model(records), head(model.penultimate(records)))
    assert model(records).shape == (6, 5)


@everywhere
def test_every_parameter_learns(name: str) -> None:
    model, records = build(name)
    nn.functional.cross_entropy(model(records), torch.arange(6) % 5).backward()
    idle = [key for key, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert not idle


@everywhere
def test_records_do_not_see_one_another_in_eval_mode(name: str) -> None:
    model, records = build(name)
    model.eval()
    with torch.no_grad():
        alone = torch.cat([model.penultimate(record[None]) for record in records])
        torch.testing.assert_close(model.penultimate(records), alone, rtol=1e-4, atol=1e-5)


@everywhere
def test_bfloat16_autocast_agrees_to_its_precision(name: str) -> None:
    model, records = build(name)
    model.eval()
    with torch.no_grad():
        exact = model(records)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = model(records)
    assert (rough.float() - exact).abs().max() < 0.05 * exact.abs().max() + 0.02


@everywhere
def test_a_seed_gives_the_same_weights(name: str) -> None:
    first, again = build(name)[0].state_dict(), build(name)[0].state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18"])
def test_memory_format_changes_nothing(name: str) -> None:
    model, images = build(name)
    model.eval()
    with torch.no_grad():
        expected = model(images)
        model.to(memory_format=torch.channels_last)
        found = model(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@everywhere
def test_training_step_can_be_captured_in_a_graph(name: str) -> None:
    model, records = build(name)
    model, records = model.cuda(), records.cuda()
    labels = (torch.arange(6) % 5).cuda()

    def step() -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = nn.functional.cross_entropy(model(records), labels)
        loss.backward()
        return loss

    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    with torch.cuda.graph(graph, stream=side):
        loss = step()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.isfinite(loss)
    assert all(value.grad.isfinite().all() for value in model.parameters())


def test_bert_is_read_at_cls_of_its_last_layer(bert_folder) -> None:
    model, _ = load_masked_language_model(bert_folder)
    tokens = {"input_ids": torch.randint(5, 60, (4, 7)), "attention_mask": torch.ones(4, 7, dtype=torch.long)}
    with torch.no_grad():
        hidden = model(**tokens, output_hidden_states=True).hidden_states[-1]
    np.testing.assert_allclose(embed(model, tokens).values, hidden[:, 0].numpy(), rtol=1e-5, atol=1e-6)


def test_one_number_is_a_shape_too() -> None:
    assert MODELS["residual_mlp"](7, 3).stem.in_features == 7


def test_unknown_name_and_wrong_shapes_are_told() -> None:
    with pytest.raises(UnknownNameError, match=r"architecture must be one of .* Did you mean 'resnet18'"):
        MODELS["resnet-18"]
    with pytest.raises(InputError, match=r"record_shape must be \(n_features,\) for a model of rows; got \(3, 8, 8\)"):
        MODELS["ft_transformer"]((3, 8, 8), 2)
    with pytest.raises(InputError, match=r"record_shape must be \(channels, height, width\) .* got \(54,\)"):
        MODELS["resnet18"](54, 2)
