"""Masks that are read again are those that would have been drawn."""

import numpy as np
import pytest
import torch

from ruler.core.types import Partition
from ruler.models import mask_replay
from ruler.models.mask_replay import MaskReplay, replay_masks
from ruler.models.tabular_mlp import draw_noise
from ruler.training.classifier import train_tabular
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, unlearn

SHAPES = ([(7, 5), (100, 3)], [(64, 1), (1, 1), (90, 4)], [(500, 2)])


def draw(shapes, seed=3, rate=0.2):
    torch.manual_seed(seed)
    return [draw_noise(torch.empty(shape), rate) for shape in shapes]


@pytest.mark.parametrize(("chunk", "most"), [(64, 1000), (64, 2), (256, 1), (1 << 20, 4)])
def test_masks_are_the_same_however_they_are_cut_and_kept(chunk, most, monkeypatch):
    monkeypatch.setattr(mask_replay, "CHUNK", chunk)
    monkeypatch.setattr(mask_replay, "MOST_CHUNKS", most)
    replay = MaskReplay()
    for seed in (3, 4, 3):
        for rate in (0.2, 0.5):
            for shapes in SHAPES:
                with replay_masks(replay):
                    found = draw(shapes, seed, rate)
                assert all(torch.equal(a, b) for a, b in zip(found, draw(shapes, seed, rate), strict=True))


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(mask_replay, "CHUNK", 64)
    monkeypatch.setattr(mask_replay, "MOST_CHUNKS", 3)
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
