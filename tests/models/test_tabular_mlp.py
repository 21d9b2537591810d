"""Masks that are read again are those that would have been drawn."""

import numpy as np
import pytest
import torch
from torch import nn

from ruler.core.types import Partition
from ruler.models import tabular_mlp
from ruler.models.tabular_mlp import Dropout, MaskReplay, TabularMLP, draw_noise, replay_masks
from ruler.training.classifier import train_tabular
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, unlearn


def test_parameters_carry_the_published_names() -> None:
    shapes = {name: tuple(value.shape) for name, value in TabularMLP(13, 3, hidden=16).state_dict().items()}
    assert shapes == {
        "net.0.weight": (16, 13),
        "net.0.bias": (16,),
        "net.3.weight": (16, 16),
        "net.3.bias": (16,),
        "net.6.weight": (3, 16),
        "net.6.bias": (3,),
    }


def test_initial_weights_are_those_of_plain_layers_built_in_order() -> None:
    torch.manual_seed(5)
    layers = [nn.Linear(4, 128), nn.Linear(128, 128), nn.Linear(128, 2)]
    torch.manual_seed(5)
    model = TabularMLP(4)
    for layer, built in zip(layers, (model.net[0], model.net[3], model.net[6]), strict=True):
        assert torch.equal(layer.weight, built.weight)
        assert torch.equal(layer.bias, built.bias)


def test_head_of_the_penultimate_representation_gives_the_logits() -> None:
    model, rows = TabularMLP(4).eval(), torch.randn(6, 4)
    representation = model.penultimate(rows)
    assert representation.min() >= 0
    assert torch.equal(model.net[6](representation), model(rows))


def test_dropout_is_active_in_train_mode_alone() -> None:
    model, rows = TabularMLP(4), torch.randn(6, 4)
    assert not torch.equal(model(rows), model(rows))
    model.eval()
    assert torch.equal(model(rows), model(rows))
    assert all(layer.p == 0.2 for layer in model.net if isinstance(layer, nn.Dropout))


@pytest.mark.parametrize("shape", [(1, 1), (455, 128), (3000, 128)])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5])
def test_masks_are_those_of_the_sequential_generator(shape: tuple[int, int], rate: float) -> None:
    units = torch.ones(shape)
    torch.manual_seed(11)
    noise = draw_noise(units, rate)
    after = torch.rand(1)
    torch.manual_seed(11)
    expected = torch.empty(shape, dtype=torch.double).uniform_() < 1 - rate
    assert torch.equal(noise > 0, expected)
    assert torch.equal(after, torch.rand(1)), "the stream must go on where torch's would"


def test_output_and_gradient_equal_a_masked_product() -> None:
    units = torch.randn(50, 8, requires_grad=True)
    torch.manual_seed(2)
    dropped = Dropout(0.2)(units)
    dropped.sum().backward()
    torch.manual_seed(2)
    noise = draw_noise(units.detach(), 0.2)
    assert torch.equal(dropped, units * noise)
    assert torch.equal(units.grad, noise)
    assert set(noise.unique().tolist()) == {0.0, 1.25}


def test_eval_mode_and_rate_zero_change_nothing_and_draw_nothing() -> None:
    units = torch.randn(5, 4)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.5).eval()(units), units)
    assert torch.equal(Dropout(0.0)(units), units)
    first = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(first, torch.rand(1))


def test_rows_out_of_order_in_memory_get_masks_by_position() -> None:
    wide = torch.ones(6, 4).T  # not contiguous
    torch.manual_seed(4)
    noise = draw_noise(wide, 0.5)
    torch.manual_seed(4)
    assert torch.equal(noise, draw_noise(torch.ones(4, 6), 0.5))


SHAPES = ([(7, 5), (100, 3)], [(64, 1), (1, 1), (90, 4)], [(500, 2)])


def draw(shapes, seed=3, rate=0.2):
    torch.manual_seed(seed)
    return [draw_noise(torch.empty(shape), rate) for shape in shapes]


@pytest.mark.parametrize(("chunk", "most"), [(64, 1000), (64, 2), (256, 1), (1 << 20, 4)])
def test_masks_are_the_same_however_they_are_cut_and_kept(chunk, most, monkeypatch):
    monkeypatch.setattr(tabular_mlp, "CHUNK", chunk)
    monkeypatch.setattr(tabular_mlp, "MOST_CHUNKS", most)
    replay = MaskReplay()
    for seed in (3, 4, 3):
        for rate in (0.2, 0.5):
            for shapes in SHAPES:
                with replay_masks(replay):
                    found = draw(shapes, seed, rate)
                assert all(torch.equal(a, b) for a, b in zip(found, draw(shapes, seed, rate), strict=True))


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(tabular_mlp, "CHUNK", 64)
    monkeypatch.setattr(tabular_mlp, "MOST_CHUNKS", 3)
    replay = MaskReplay()
    for seed in range(5):
        with replay_masks(replay):
            draw([(1000, 1)], seed)
        assert 0 < replay.n_kept <= 3


def test_trained_and_unlearned_models_are_the_same_to_the_bit(random):
    rows, labels = random.normal(size=(80, 5)).astype(np.float32), random.integers(0, 2, 80)
    partition = Partition(forget=np.arange(8), retain=np.arange(8, 80))
    settings = TrainingSettings(epochs=3)
    forget, retain = ((rows[part], labels[part]) for part in (partition.forget, partition.retain))
    methods = [
        name for name in ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "bad_teacher") if name in METHODS
    ]
    assert len(methods) == 5

    def run():
        models = [train_tabular(rows, labels, part, seed=1, settings=settings) for part in (None, partition)]
        return models + [unlearn(name, models[0], forget=forget, retain=retain) for name in methods]

    replay, found = MaskReplay(), []
    for part in (None, partition):
        with replay_masks(replay):
            found.append(train_tabular(rows, labels, part, seed=1, settings=settings))
    for name in methods:
        with replay_masks(replay):
            found.append(unlearn(name, found[0], forget=forget, retain=retain))
    for ours, theirs in zip(found, run(), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
