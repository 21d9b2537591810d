"""What a diagnostic job hands to the audit."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ruler.auditing.findings import FamilyFinding
from ruler.core.types import Embeddings
from ruler.experiment.cell import Workplace, measure_cell
from ruler.experiment.diagnostic import engine as module
from ruler.experiment.diagnostic.data import load_data
from ruler.experiment.diagnostic.engine import AuditableModel, DiagnosticEngine
from ruler.experiment.grid import Cell, Job
from ruler.metrics import percentile_rank

FACES = Cell(
    "any", "lfw", "original", 0.2, 0, batch_size=16, engine="diagnostic", architecture="resnet18", size="smoke"
)
DIGITS = replace(FACES, dataset="svhn", architecture="small_cnn")


def measure_original(cell: Cell, folder: Path) -> AuditableModel:
    measured = DiagnosticEngine(Job((cell,)), Workplace(folder)).measure_original(cell)
    assert isinstance(measured, AuditableModel)
    return measured


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the audit was last asked; it finds nothing."""
    kept: dict[str, Any] = {}

    def audit(evidence: dict[str, Any], **given: Any) -> SimpleNamespace:
        kept.update(evidence, **given)
        nothing = FamilyFinding("inconclusive", None, "")
        return SimpleNamespace(verdict="inconclusive", outputs=nothing, layers=nothing, metrics={}, damage=None)

    monkeypatch.setattr(module, "gather_evidence", lambda **given: given)
    monkeypatch.setattr(module, "audit_evidence", audit)
    return kept


@pytest.mark.usefixtures("made_up_data")
def test_an_audit_gets_all_records_where_they_have_groups_and_a_draw_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AUDITED_ROWS", 5)
    faces = load_data("lfw", "smoke", None)
    forget, retain, held_out = map(len, measure_original(FACES, tmp_path).sides)
    assert forget + retain == faces.n_train > 10
    assert held_out == len(faces.inputs) - faces.n_train > 5
    assert [len(side) for side in measure_original(DIGITS, tmp_path).sides[1:]] == [5, 5]


@pytest.mark.usefixtures("made_up_data")
def test_losses_labels_and_groups_travel_with_their_records(tmp_path: Path) -> None:
    faces = load_data("lfw", "smoke", None)
    assert faces.labels is not None
    assert faces.groups is not None
    measured = measure_original(FACES, tmp_path)
    for side in measured.sides:
        assert side.labels.tolist() == faces.labels[side.ids].tolist()
        assert side.groups.tolist() == faces.groups[side.ids].tolist()
        assert side.losses.min() >= 0
    is_right = [np.exp(-side.losses) > 0.5 for side in measured.sides]  # two classes
    assert is_right[1].mean() == pytest.approx(float(measured.alone["retain_accuracy"]))
    ids = np.concatenate([side.ids for side in measured.sides])
    assert len(set(ids.tolist())) == len(ids) == len(faces.inputs)
    assert measure_original(DIGITS, tmp_path).sides[0].groups is None


@pytest.mark.usefixtures("made_up_data")
def test_an_audit_knows_oracle_original_and_accuracies(tmp_path: Path, asked: dict[str, Any]) -> None:
    cell = replace(DIGITS, method="fine_tuning", learning_rate=5e-4)
    engine = DiagnosticEngine(Job((cell,)), Workplace(tmp_path))
    scores = measure_cell(cell, engine)
    original, oracle = engine.measure_original(cell), engine.measure_oracle(cell, 0)
    assert isinstance(original, AuditableModel)
    assert isinstance(oracle, AuditableModel)
    assert (asked["original"], asked["oracle"]) == (original.sides, oracle.sides)
    assert all(isinstance(side, Embeddings) for side in asked["unlearned"])
    assert asked["unlearned"] != original.sides
    assert asked["search"].keywords == {"device": "cpu"}  # on a GPU: there, where it takes no time
    assert asked["answers"].keys() == {"unlearned", "oracle", "original"}
    assert asked["answers"]["unlearned"] == {
        "forget_accuracy": scores["forget_accuracy"],
        "retain_accuracy": scores["retain_accuracy"],
        "held_out_accuracy": scores["test_accuracy"],
    }
    assert asked["answers"]["oracle"]["retain_accuracy"] == oracle.alone["retain_accuracy"]


@pytest.mark.usefixtures("made_up_data")
def test_which_models_are_audited(tmp_path: Path, asked: dict[str, Any]) -> None:
    engine = DiagnosticEngine(Job((DIGITS,)), Workplace(tmp_path))
    measure_cell(replace(DIGITS, method="oracle"), engine)
    assert not asked  # no other oracle to compare it with
    measure_cell(DIGITS, engine)
    assert asked["unlearned"] == asked["original"]
    asked.clear()
    measure_cell(replace(DIGITS, method="oracle", other_seed=1), engine)
    other = engine.measure_oracle(DIGITS, 1)
    assert isinstance(other, AuditableModel)
    assert asked["oracle"] == other.sides
    assert "original" not in asked


@pytest.mark.usefixtures("made_up_data")
def test_m4_is_of_the_forget_set_and_beside_it_of_the_held_out_records(tmp_path: Path) -> None:
    measured = measure_original(FACES, tmp_path)
    forget, retain, held_out = (side.values for side in measured.sides)
    assert measured.alone["m4"] == pytest.approx(percentile_rank(forget, retain).mean(), abs=1e-12)
    assert measured.alone["m4_held_out"] == pytest.approx(percentile_rank(held_out, retain).mean(), abs=1e-12)
    assert measured.alone["m4"] != measured.alone["m4_held_out"]
