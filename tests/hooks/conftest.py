"""A small model that remembers its forget records, and reports that are quick to make."""

import os

import numpy as np
import pytest

import ruler
from ruler.core.types import Embeddings

# nobody is told of these tests
os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", WANDB_ERROR_REPORTING="false")


@pytest.fixture(scope="session")
def rows():
    return np.random.default_rng(2).normal(size=(230, 6))


@pytest.fixture(scope="session")
def report(rows):
    """An audit that settles nothing, with all contrasts of embeddings."""
    oracle = tuple(np.split(rows, [50, 150]))
    unlearned = tuple(part + 0.1 * np.random.default_rng(1).normal(size=part.shape) for part in oracle)
    return ruler.audit(unlearned, oracle=oracle)


@pytest.fixture(scope="session")
def audit_marked():
    """Audits a model that bears so much of the forget records' marks; its original bears them whole."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(900, 6))
    marks = np.concatenate([rng.normal(size=(250, 6)), np.zeros((650, 6))])

    def embed(mark):
        return tuple(np.split(rows + 0.2 * rng.normal(size=rows.shape) + mark * marks, [250, 500]))

    def answer(mark):
        known = np.concatenate([np.full(250, mark), np.ones(250), np.zeros(400)])
        return np.split(np.logaddexp(0.0, -rng.normal(size=900) - 4.0 * known), [250, 500])

    def make(mark, answered):
        parts = zip(embed(mark), answer(answered), strict=True)
        return tuple(Embeddings(rows, losses=losses) for rows, losses in parts)

    return lambda mark, answered=0.0: ruler.audit(make(mark, answered), oracle=make(0.0, 0.0), original=make(1.0, 1.0))


@pytest.fixture(scope="session")
def erased(audit_marked):
    """An audit of a model that forgot: like its oracle, while the original remembered."""
    return audit_marked(0.0)


@pytest.fixture(scope="session")
def residual(audit_marked):
    """An audit of a model whose layers hold half of what its original's did; its answers show nothing."""
    return audit_marked(0.5)


@pytest.fixture
def records():
    """Forget, retain and held-out records of two classes, as pairs (X, y) for models of 4 inputs."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 4, generator=generator)
    y = (x[:, 0] > 0).long()
    parts = zip(("forget", "retain", "held_out"), torch.arange(120).split([30, 60, 30]), strict=True)
    return {side: (x[found], y[found]) for side, found in parts}
