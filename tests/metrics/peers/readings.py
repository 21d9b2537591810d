"""Readings made by hand."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from ruler.core.types import TokenReading


def make_reading(rows, hits=None, **parts):
    """From lists of log-probabilities of unequal length."""
    longest = max(map(len, rows))
    table = np.array([[*row, *[np.nan] * (longest - len(row))] for row in rows], dtype=float)
    if hits is None:
        is_hit = np.zeros(table.shape, dtype=bool)
    else:
        is_hit = np.array([[*row, *[False] * (longest - len(row))] for row in hits], dtype=bool)
    return TokenReading(table, is_hit, **parts)


def draw_reading(n=12, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    rows = [(-rng.exponential(size=rng.integers(1, 9)) + shift).clip(max=0) for _ in range(n)]
    return make_reading(rows, [row > -0.5 for row in rows])


def permute(reading, order):
    return TokenReading(reading.log_probs[order], reading.hits[order])


def read_log(name):
    """The benchmark's own evaluation log of a Llama-2-7B, by part and column; arrays in the order of its items."""
    folder = os.environ.get("RULER_DATA")
    path = Path(folder or ".") / "text" / "tofu" / "published_logs" / f"llama2-7b_{name}.json.gz"
    if not path.exists():
        pytest.skip("needs TOFU's published logs: set RULER_DATA")
    parts = json.loads(gzip.decompress(path.read_bytes()))
    return {
        part: {column: list(values.values()) for column, values in columns.items()} for part, columns in parts.items()
    }


def read_losses(losses):
    """A reading of one token per record that has these losses."""
    return make_reading([[-loss] for loss in losses])
