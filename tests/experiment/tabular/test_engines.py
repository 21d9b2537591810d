"""The engines train what their cells need, once, and a cell that fails fails alone."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import ruler.experiment.tabular.engines as module
from ruler.core.errors import DivergedError
from ruler.data import TabularSplit
from ruler.experiment.cell import Scores, Workplace, run_job
from ruler.experiment.grid import Cell, Job, group_jobs, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.tabular.engines import EnsembleEngine, ProtocolEngine, choose_unlearning
from ruler.experiment.tabular.measure import load_parts
from ruler.training.classifier import train_tabular
from ruler.training.ensemble import EnsembleMember, StackedMLP, train_ensemble

SCRUB = Cell("own", "breast_cancer", "scrub", 0.05, 0, 5e-4)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(models=tmp_path_factory.mktemp("models"))


def test_a_failing_ensemble_cell_fails_alone(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def unlearn_some(method: str, originals: object, *, forget: list[np.ndarray], **rest: object) -> object:
        if any(len(rows) == 45 for rows in forget):
            raise DivergedError("loss must stay finite")
        return originals

    monkeypatch.setattr(module, "unlearn_ensemble", unlearn_some)
    cells = tuple(Cell("own", "breast_cancer", "scrub", f, 0, 5e-4, engine="ensemble") for f in (0.05, 0.1, 0.2))
    outcomes = list(run_job(Job(cells), workplace))
    assert [outcome.error for outcome in outcomes] == ["", "DivergedError: loss must stay finite", ""]


def test_asking_models_at_once_changes_no_number(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    study = StudySettings(
        "own", ("breast_cancer",), ("scrub", "bad_teacher"), (0.05, 0.1), (0, 1, 2), engine="ensemble"
    )
    alone = [outcome.scores for outcome in run_job(Job(list_cells(study)), workplace)]
    monkeypatch.setattr(module, "count_at_once", lambda *_: 2)
    assert [outcome.scores for outcome in run_job(Job(list_cells(study)), workplace)] == alone


def few_rows(n_rows: int) -> TabularSplit:
    whole = load_parts("breast_cancer")
    return replace(whole, train_features=whole.train_features[:n_rows], train_target=whole.train_target[:n_rows])


def measure(cells: Sequence[Cell], n_threads: int | None = 1) -> dict[Cell, Scores | None]:
    before = torch.get_num_threads()
    try:
        return {found.cell: found.scores for found in run_job(Job((*cells,)), Workplace(), n_threads=n_threads)}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n_rows", [18, 455])
def test_threads_change_no_number_of_an_ensemble(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On 16 threads a product of 18 rows rounds otherwise than on one, which would move all scores of most models."""
    parts = few_rows(n_rows)
    monkeypatch.setattr(module, "load_parts", lambda dataset: parts)
    study = StudySettings(
        "own", ("breast_cancer",), ("scrub", "bad_teacher"), (0.05,), (0, 1), has_reference_rows=True, engine="ensemble"
    )
    expected = measure(list_cells(study))
    assert None not in expected.values()
    for n_threads in (2, 3, 16):
        assert measure(list_cells(study), n_threads) == expected


def test_the_other_cells_of_a_job_and_their_order_change_no_number_of_an_ensemble() -> None:
    study = StudySettings(
        "own", ("breast_cancer",), ("scrub", "bad_teacher"), (0.05, 0.1), (0, 1), forget_seeds=(999, 1000),
        has_reference_rows=True, engine="ensemble",
    )  # fmt: skip
    cells = list_cells(study)
    expected = measure(cells)
    assert None not in expected.values()
    assert measure(cells[::-1]) == expected
    alone = [cell for job in group_jobs(cells) for cell in job.cells]
    assert {**measure(alone[: len(alone) // 2]), **measure(alone[len(alone) // 2 :])} == expected
    left = cells[3::5]  # of a run that was stopped
    assert measure(left) == {cell: expected[cell] for cell in left}


def test_a_model_whose_answers_cannot_be_scored_fails_alone(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unlearn_badly(method: str, originals: StackedMLP, **rest: object) -> StackedMLP:
        originals.flat[1] = torch.nan
        return originals

    monkeypatch.setattr(module, "unlearn_ensemble", unlearn_badly)
    monkeypatch.setattr(module, "count_at_once", lambda *_: 8)
    cells = tuple(Cell("own", "breast_cancer", "scrub", 0.1, seed, 5e-4, engine="ensemble") for seed in range(3))
    first, second, third = (outcome.error for outcome in run_job(Job(cells), workplace))
    assert first == third == ""
    assert "representations must be finite" in second


def test_the_original_is_trained_once_for_all_fractions(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, bool]] = []

    def train(features: object, target: object, partition: object = None, **rest: object) -> object:
        calls.append((rest["seed"], partition is None))  # type: ignore[arg-type]
        return train_tabular(features, target, partition, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train_tabular", train)
    study = StudySettings("own", ("breast_cancer",), ("gradient_ascent", "scrub"), (0.05, 0.1), (3,))
    assert all(outcome.scores for outcome in run_job(Job(list_cells(study)), workplace))
    assert sorted(calls) == [(3, False), (3, False), (3, True)]


def test_epochs_scale_with_the_rate() -> None:
    def epochs(method: str, rate: float) -> int:
        return choose_unlearning(Cell("own", "adult", method, 0.05, 0, rate)).epochs

    assert [epochs("gradient_ascent", rate) for rate in (1e-4, 5e-4, 1e-3)] == [1, 5, 10]
    assert [epochs("neggrad_plus", rate) for rate in (1e-4, 5e-4, 1e-3)] == [2, 10, 20]


def test_settings_of_a_cell_reach_the_method() -> None:
    settings = choose_unlearning(Cell("own", "adult", "bad_teacher", 0.05, 0, 5e-4, batch_size=128, teacher_seed=102))
    assert (settings.batch_size, settings.teacher_seed) == (128, 102)  # type: ignore[attr-defined]


def test_imported_models_are_the_files_and_a_missing_one_is_named(workplace: Workplace, tmp_path: Path) -> None:
    ProtocolEngine(Job((SCRUB,)), workplace).export(SCRUB, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "breast_cancer_seed0_oracle_ff05.pt",
        "breast_cancer_seed0_orig.pt",
    ]
    cells = tuple(Cell("own", "breast_cancer", "scrub", f, 0, 5e-4, models="imported") for f in (0.05, 0.1))
    found, missing = run_job(Job(cells), Workplace(models=workplace.models, checkpoints=tmp_path))
    (trained,) = run_job(Job((SCRUB,)), workplace)
    assert found.scores == trained.scores
    assert "breast_cancer_seed0_oracle_ff10.pt must exist" in missing.error


def test_imported_models_need_a_folder() -> None:
    (outcome,) = run_job(Job((Cell("own", "breast_cancer", "scrub", 0.05, 0, 5e-4, models="imported"),)), Workplace())
    assert "checkpoints must name the folder that models are imported from" in outcome.error


def test_members_of_an_ensemble_job_are_what_its_cells_need(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, int]] = []

    def train(features: object, classes: object, members: list[EnsembleMember]) -> StackedMLP:
        trained.extend((member.seed, 0 if member.forget is None else len(member.forget)) for member in members)
        return train_ensemble(features, classes, members)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train_ensemble", train)
    cells = (
        Cell("own", "breast_cancer", "scrub", 0.05, 0, 5e-4, engine="ensemble"),
        Cell("own", "breast_cancer", "oracle", 0.1, 1, engine="ensemble"),
    )
    EnsembleEngine(Job(cells), Workplace()).measure_original(cells[0])
    assert sorted(trained) == [(0, 0), (0, 22), (1, 45)]
