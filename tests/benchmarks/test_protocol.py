import pytest

from benchmarks.protocol import run_plainly
from ruler.data import load_tabular, partition_rows, split
from ruler.metrics import m1, m2, m3, m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.training.classifier import predict, train_tabular
from ruler.unlearning import METHODS, unlearn


def test_the_plain_form_is_the_same_protocol(monkeypatch):
    """Seeds, order and objectives alike give the same metrics."""
    monkeypatch.setattr("benchmarks.protocol.FRACTIONS", (0.05,))
    plain = {row.method: row for row in run_plainly("breast_cancer", 0)}
    parts = split(load_tabular("breast_cancer"))
    x, y = parts.train_features, parts.train_target
    partition = partition_rows(len(x), 0.05)
    f, r = partition.forget, partition.retain
    original, oracle = train_tabular(x, y, seed=0), train_tabular(x, y, partition, seed=0)
    models = {"original": original, "oracle": oracle}
    for method in plain.keys() - models:
        assert method in METHODS
        models[method] = unlearn(method, original, forget=(x[f], y[f]), retain=(x[r], y[r])).eval()
    for name, row in plain.items():
        rows = [
            _embed(model, x[side]) for model, side in ((models[name], f), (oracle, f), (models[name], r), (oracle, r))
        ]
        assert row.m1 == pytest.approx(m1(rows[0], rows[1]), abs=1e-5)
        assert row.m2 == pytest.approx(m2(*rows), abs=1e-5)
        assert row.m3 == pytest.approx(m3(rows[0], _embed(original, x[f]), rows[1]), abs=1e-5)
        assert row.m4 == pytest.approx(m4(rows[0], rows[2]), abs=5e-3)
        forget, retain, test = (
            predict(models[name], side)
            for side in ((x[f], y[f]), (x[r], y[r]), (parts.test_features, parts.test_target))
        )
        assert row.mia == pytest.approx(membership_inference(forget, test), abs=1e-6)
        found = row.forget_accuracy, row.retain_accuracy, row.test_accuracy
        assert found == pytest.approx([accuracy(side) for side in (forget, retain, test)], abs=1e-6)


def _embed(model, x):
    import torch

    with torch.no_grad():
        return model.penultimate(torch.from_numpy(x)).numpy()
