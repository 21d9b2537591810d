"""What a diagnostic job hands to the audit."""

from pathlib import Path
from typing import Any

import pytest

from ruler.experiment.cell import Workplace, run_job
from ruler.experiment.diagnostic import bench
from ruler.experiment.diagnostic.material import load_material
from ruler.experiment.grid import Cell, Job
from ruler.experiment.scores import Scores
from ruler.metrics import percentile_rank
from ruler.neighbors.search import ELSEWHERE


def run_original(dataset: str, architecture: str, workplace: Path) -> tuple[list[Any], Scores]:
    """The sides (forget, retain, held out) of an original model, as an audit gets them, and its scores."""
    sides: list[Any] = []

    def judge(unlearned: Any, oracle: Any, groups: Any) -> dict[str, float | str]:
        sides.extend(unlearned)
        assert ELSEWHERE.get().keywords == {"device": "cpu"}  # on a GPU: there, where it takes no time
        return {}

    cell = Cell(
        "any", dataset, "original", 0.2, 0, batch_size=16, engine="diagnostic", architecture=architecture, size="smoke"
    )
    (outcome,) = run_job(Job((cell,)), Workplace(workplace, judge=judge))
    assert outcome.scores is not None, outcome.details
    return sides, outcome.scores


def list_judged(dataset: str, architecture: str, workplace: Path) -> list[int]:
    return [len(side) for side in run_original(dataset, architecture, workplace)[0]]


@pytest.mark.usefixtures("made_up_data")
def test_an_audit_gets_all_records_where_they_have_groups_and_a_draw_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "JUDGED_ROWS", 5)
    faces = load_material("lfw", "smoke", None)
    forget, retain, held_out = list_judged("lfw", "resnet18", tmp_path)
    assert forget + retain == faces.n_train > 10
    assert held_out == len(faces.inputs) - faces.n_train > 5
    assert list_judged("svhn", "small_cnn", tmp_path)[1:] == [5, 5]


@pytest.mark.usefixtures("made_up_data")
def test_m4_is_of_the_forget_set_and_beside_it_of_the_held_out_records(tmp_path: Path) -> None:
    (forget, retain, held_out), scores = run_original("lfw", "resnet18", tmp_path)
    assert scores["m4"] == pytest.approx(percentile_rank(forget, retain).mean(), abs=1e-12)
    assert scores["m4_held_out"] == pytest.approx(percentile_rank(held_out, retain).mean(), abs=1e-12)
    assert scores["m4"] != scores["m4_held_out"]
