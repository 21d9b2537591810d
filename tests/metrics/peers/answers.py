"""Classifiers' answers made by hand or by chance."""

import numpy as np

from ruler.core.types import Predictions


def draw_answers(n=30, seed=0, n_classes=4, scale=2.0, labels_seed=9):
    rng = np.random.default_rng(seed)
    return Predictions(
        rng.normal(0, scale, (n, n_classes)), np.random.default_rng(labels_seed).integers(0, n_classes, n)
    )


def answer_rightly(n_right, n):
    """Two classes; the first answers are right."""
    return Predictions(np.tile([1.0, 0.0], (n, 1)), (np.arange(n) >= n_right).astype(np.int64))
