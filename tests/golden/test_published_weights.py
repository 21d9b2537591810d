"""Retrained models equal the authors' published weights."""

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not (Path(os.environ.get("RULER_DATA", "/nowhere")) / "checkpoints").is_dir(),
    reason="RULER_DATA names no folder with published checkpoints",
)

FRACTIONS = (None, 0.01, 0.05, 0.10)
SMALL = [("breast_cancer", 0), ("breast_cancer", 1), ("german_credit", 2)]
REST = [
    (key, seed)
    for key in ("breast_cancer", "german_credit", "phoneme", "adult")
    for seed in range(3)
    if (key, seed) not in SMALL
]


def compare(key: str, seed: int) -> None:
    import torch

    from ruler.data import load_tabular, partition_rows, split
    from ruler.metrics.outputs import accuracy
    from ruler.training.checkpoints import import_published
    from ruler.training.classifier import predict, train_tabular

    parts = split(load_tabular(key))
    for fraction in FRACTIONS:
        partition = None if fraction is None else partition_rows(len(parts.train_target), fraction)
        model = train_tabular(parts.train_features, parts.train_target, partition, seed=seed)
        published = import_published(Path(os.environ["RULER_DATA"]) / "checkpoints", key, seed, fraction)
        ours, theirs = (torch.cat([value.flatten() for value in m.state_dict().values()]) for m in (model, published))
        assert (ours - theirs).abs().mean() < 1e-4, (key, seed, fraction)
        test = (parts.test_features, parts.test_target)
        assert abs(accuracy(predict(model, test)) - accuracy(predict(published, test))) <= 2e-3


@pytest.mark.parametrize(("key", "seed"), SMALL)
def test_weights_equal_the_published_ones(key: str, seed: int) -> None:
    compare(key, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "seed"), REST)
def test_all_other_weights_equal_the_published_ones(key: str, seed: int) -> None:
    compare(key, seed)
