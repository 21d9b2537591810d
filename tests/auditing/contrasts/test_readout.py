"""What a head fitted anew reads from a layer."""

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.linear_model import LogisticRegression
from tests.auditing.cases import FAST

from ruler.auditing import audit, gather_evidence
from ruler.auditing.contrasts.loss import compress_confidence
from ruler.auditing.contrasts.readout import find_axes, score_readout
from ruler.core.types import Embeddings

SIZES = (60, 400, 120)
N_CLASSES = 4


@pytest.fixture
def make_model(random):
    """Models whose rows hold the labels; of forget and retain records also labels that inputs do not tell."""
    n = sum(SIZES)
    labels = random.integers(0, N_CLASSES, size=n)
    inputs = random.normal(size=(n, 8))
    ways = random.normal(size=(N_CLASSES, 8))

    def make(memory=0.0, change=lambda rows: rows):
        held = np.repeat([memory, 1.0, 0.0], SIZES)
        rows = change(inputs + 0.3 * random.normal(size=(n, 8)) + (1.0 + held)[:, None] * ways[labels])
        parts = zip(*(np.split(one, np.cumsum(SIZES)[:2]) for one in (rows, labels)), strict=True)
        return tuple(Embeddings(row, labels=label) for row, label in parts)

    return make


def test_a_head_is_fitted_on_one_half_of_the_retain_records_and_read_from_all_others(make_model):
    evidence = gather_evidence(make_model())
    model = evidence.main
    scores = score_readout(model, [])
    fitted = model.halves[0]
    assert np.isnan(scores["retain"]).tolist() == np.isin(model.members, fitted).tolist()
    assert 0 < np.isnan(scores["retain"]).sum() < len(model.members)
    rows = model.rows["retain"][fitted]
    scale = np.sqrt(np.square(rows - rows.mean(axis=0)).mean())
    head = LogisticRegression(C=0.1, tol=1e-8, max_iter=5000).fit(rows / scale, model.classes["retain"][fitted])
    for side in ("forget", "held_out"):
        chance = head.predict_proba(model.rows[side] / scale)[np.arange(len(scores[side])), model.classes[side]]
        expected = compress_confidence(-np.log(chance))
        assert np.corrcoef(expected, scores[side])[0, 1] > 0.999
        assert scores[side] == pytest.approx(expected, abs=0.1)


TURN = ortho_group.rvs(8, random_state=0)
CHANGES = {
    "turned": lambda rows: rows @ TURN,
    "scaled": lambda rows: 30.0 * rows,
    "shifted": lambda rows: rows + 5.0,
    "all": lambda rows: 0.02 * (rows @ TURN) - 3.0,
}


@pytest.mark.parametrize("kind", CHANGES)
def test_the_axes_of_a_layer_do_not_matter(make_model, kind):
    model = make_model()
    changed = tuple(Embeddings(CHANGES[kind](part.values), labels=part.labels) for part in model)
    found = []
    for given in (model, changed):
        evidence = gather_evidence(given, ids={"retain": np.arange(SIZES[1]).astype(str)})
        # evidence is ordered, and halved, by content, which the change has moved
        evidence.main.halves[0][:] = np.sort(np.argsort(evidence.ids["retain"].astype(int))[:200])
        scores = score_readout(evidence.main, [])
        found.append(scores["forget"][np.argsort(evidence.order)])
    assert found[1] == pytest.approx(found[0], abs=0.05)
    assert np.std(found[0]) > 0.5


def test_labels_that_only_the_layer_holds_are_seen(make_model):
    oracle, original = make_model(), make_model(1.0)
    for memory, verdict in ((1.0, "residual"), (0.0, "erased")):
        report = audit(make_model(memory), oracle=oracle, original=original, settings=FAST)
        found = report.metrics["readout"]
        assert report.layers.verdict == found.verdict == verdict
        assert found.remaining["original"].value == pytest.approx(memory, abs=0.2)
        assert found.remaining["members"].low < memory + 0.2
        assert report.metrics["tangent"].verdict == "descriptive"  # the readout decides in its stead


def test_without_classes_there_is_no_readout(make_model):
    bare = tuple(part.values for part in make_model())
    assert "readout" not in audit(bare, settings=FAST).metrics


def test_axes_are_the_principal_ones(random):
    rows = random.normal(size=(50, 200)) * np.linspace(0.1, 3, 200)
    rows -= rows.mean(axis=0)
    found = find_axes(rows, 20)
    strongest = np.linalg.svd(rows, full_matrices=False)[2][:20]
    assert found.shape == (200, 20)
    assert found.T @ found == pytest.approx(np.eye(20), abs=1e-9)
    assert strongest @ found @ found.T == pytest.approx(strongest, abs=1e-8)
    tall = random.normal(size=(300, 30)) * np.linspace(0.1, 3, 30)
    found = find_axes(tall - tall.mean(axis=0), 5)
    assert np.abs(found.T @ np.linalg.svd(tall - tall.mean(axis=0))[2][:5].T).max(axis=0) == pytest.approx(np.ones(5))
