import pytest

from benchmarks.protocol import run_plainly
from ruler.data import load_tabular, partition_rows, split
from ruler.metrics import m2, m4
from ruler.training.classifier import train_tabular
from ruler.unlearning import METHODS, unlearn


def test_the_plain_form_is_the_same_protocol(monkeypatch):
    """Seeds, order and objectives alike give the same metrics."""
    monkeypatch.setattr("benchmarks.protocol.FRACTIONS", (0.05,))
    plain = {method: (gap, rank) for method, _, gap, rank in run_plainly("breast_cancer", 0)}
    parts = split(load_tabular("breast_cancer"))
    x, y = parts.train_features, parts.train_target
    partition = partition_rows(len(x), 0.05)
    f, r = partition.forget, partition.retain
    original, oracle = train_tabular(x, y, seed=0), train_tabular(x, y, partition, seed=0)
    for method in plain:
        assert method in METHODS
        unlearned = unlearn(method, original, forget=(x[f], y[f]), retain=(x[r], y[r])).eval()
        rows = [_embed(model, x[side]) for model, side in ((unlearned, f), (oracle, f), (unlearned, r), (oracle, r))]
        assert plain[method][0] == pytest.approx(m2(*rows), abs=1e-5)
        assert plain[method][1] == pytest.approx(m4(rows[0], rows[2]), abs=5e-3)


def _embed(model, x):
    import torch

    with torch.no_grad():
        return model.penultimate(torch.from_numpy(x)).numpy()
