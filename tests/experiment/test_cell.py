"""A cell's row holds what the public metrics say of its models, from either engine."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ruler.core.types import Predictions
from ruler.experiment.cell import Workplace, run_job
from ruler.experiment.ensemble import EnsembleBench
from ruler.experiment.grid import Cell, Job, list_cells
from ruler.experiment.protocol import ProtocolBench, choose_unlearning
from ruler.experiment.records import load_parts, make_records
from ruler.experiment.settings import StudySettings
from ruler.metrics import m1, m2, m3, m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.training.classifier import train_tabular
from ruler.training.ensemble import StackedMLP
from ruler.unlearning import unlearn

SCRUB = Cell("own", "breast_cancer", "scrub", 0.05, 0, 5e-4)
ALONE = {"n_forget", "m4", "mia", "forget_accuracy", "retain_accuracy", "test_accuracy"}
AGAINST = {"m1", "m2", "m2_mean_baseline"}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    return Workplace(models=tmp_path_factory.mktemp("models"))


def embed(model: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model.eval().penultimate(torch.from_numpy(rows)).double().numpy()  # type: ignore[operator]


def predict(model: torch.nn.Module, rows: np.ndarray, labels: np.ndarray) -> Predictions:
    with torch.no_grad():
        return Predictions(model.eval()(torch.from_numpy(rows)).double().numpy(), labels)


def test_a_row_is_what_the_public_functions_say(workplace: Workplace) -> None:
    parts = load_parts("breast_cancer")
    features, target = parts.train_features, parts.train_target
    partition = make_records(parts, 0.05, 999).partition
    forget, retain = features[partition.forget], features[partition.retain]
    pairs = {"forget": (forget, target[partition.forget]), "retain": (retain, target[partition.retain])}
    original, oracle = (train_tabular(features, target, part, seed=0) for part in (None, partition))
    model = unlearn("scrub", original, **pairs)
    drawn = np.random.RandomState(42).choice(len(retain), min(500, len(retain)), replace=False)
    u, o = embed(model, forget), embed(oracle, forget)
    test = predict(model, parts.test_features, parts.test_target)
    gone = predict(model, *pairs["forget"])
    expected = {
        "n_forget": len(forget),
        "m1": m1(u, o),
        "m2": m2(u, o, embed(model, retain)[drawn], embed(oracle, retain)[drawn]),
        "m3": m3(u, embed(original, forget), o),
        "m4": m4(u, embed(model, retain)[:2000]),
        "mia": membership_inference(gone, test),
        "forget_accuracy": accuracy(gone),
        "retain_accuracy": accuracy(predict(model, *pairs["retain"])),
        "test_accuracy": accuracy(test),
    }
    (outcome,) = run_job(Job((SCRUB,)), workplace)
    assert outcome.scores is not None
    assert {name: outcome.scores[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    baseline = (embed(model, retain)[drawn], embed(oracle, retain)[drawn])
    assert outcome.scores["m2_mean_baseline"] == pytest.approx(m1(u, o) - m1(*baseline), abs=1e-6)


@pytest.mark.parametrize("engine", ["protocol", "ensemble"])
def test_each_kind_of_cell_has_the_scores_that_apply(engine: str, workplace: Workplace) -> None:
    study = StudySettings(
        "own", ("breast_cancer",), ("gradient_ascent", "bad_teacher"), (0.05,), (0,), has_reference_rows=True,
        engine=engine,  # type: ignore[arg-type]
    )  # fmt: skip
    outcomes = {outcome.cell.method: outcome for outcome in run_job(Job(list_cells(study)), workplace)}
    kinds = {method: set(outcome.scores or {}) for method, outcome in outcomes.items()}
    assert kinds["gradient_ascent"] == kinds["bad_teacher"] == ALONE | AGAINST | {"m3"}
    assert kinds["original"] == ALONE | AGAINST
    assert kinds["oracle"] == ALONE
    assert all(np.isfinite(list(outcome.scores.values())).all() for outcome in outcomes.values() if outcome.scores)


@pytest.mark.parametrize("engine", ["protocol", "ensemble"])
def test_pairs_of_oracles_are_only_compared(engine: str, workplace: Workplace) -> None:
    cell = Cell("own", "breast_cancer", "oracle", 0.05, 0, other_seed=1, engine=engine)
    (outcome,) = run_job(Job((cell,)), workplace)
    assert set(outcome.scores or {}) == AGAINST | {"n_forget"}


def test_both_engines_agree_in_what_they_measure(workplace: Workplace) -> None:
    protocol, ensemble = (
        next(run_job(Job((Cell("own", "breast_cancer", "fine_tuning", 0.05, 0, 5e-4, engine=engine),)), workplace))
        for engine in ("protocol", "ensemble")
    )
    assert protocol.scores is not None
    assert ensemble.scores is not None
    assert ensemble.scores["n_forget"] == protocol.scores["n_forget"]
    assert ensemble.scores["m1"] == pytest.approx(protocol.scores["m1"], abs=0.01)
    assert ensemble.scores["test_accuracy"] == pytest.approx(protocol.scores["test_accuracy"], abs=0.03)


def test_a_failing_cell_is_told_of_and_the_rest_goes_on(workplace: Workplace) -> None:
    bad = Cell("own", "breast_cancer", "scrub", 0.99, 0, 5e-4)
    worse = Cell("own", "breast_cancer", "scrub", 0.05, 0, 1e9)
    outcomes = list(run_job(Job((bad, worse, SCRUB)), workplace))
    assert [outcome.scores is None for outcome in outcomes] == [False, True, False]
    assert outcomes[1].error.startswith("DivergedError: loss must stay finite")
    assert "Traceback" in outcomes[1].details


def test_a_job_whose_models_cannot_be_loaded_fails_in_every_cell_with_that_reason(tmp_path: Path) -> None:
    cells = tuple(
        Cell("clinical", "mtsamples", method, 0.05, 0, engine="diagnostic", architecture="bert_mlm", size="smoke")
        for method in ("original", "oracle")
    )
    outcomes = list(run_job(Job(cells), Workplace(language_model=str(tmp_path / "nowhere"))))
    assert [outcome.cell for outcome in outcomes] == list(cells)
    for outcome in outcomes:
        assert outcome.scores is None
        assert outcome.error.startswith(f"FileFormatError: {tmp_path / 'nowhere'} must be a folder with a config.json")
        assert "Traceback" in outcome.details


def test_a_failing_ensemble_cell_fails_alone(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    import ruler.experiment.ensemble as module
    from ruler.core.errors import DivergedError

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
    monkeypatch.setattr(EnsembleBench, "_count_at_once", lambda *_: 2)
    assert [outcome.scores for outcome in run_job(Job(list_cells(study)), workplace)] == alone


def test_a_model_whose_answers_cannot_be_scored_fails_alone(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ruler.experiment.ensemble as module

    def unlearn_badly(method: str, originals: StackedMLP, **rest: object) -> StackedMLP:
        originals.flat[1] = torch.nan
        return originals

    monkeypatch.setattr(module, "unlearn_ensemble", unlearn_badly)
    monkeypatch.setattr(EnsembleBench, "_count_at_once", lambda *_: 8)
    cells = tuple(Cell("own", "breast_cancer", "scrub", 0.1, seed, 5e-4, engine="ensemble") for seed in range(3))
    first, second, third = (outcome.error for outcome in run_job(Job(cells), workplace))
    assert first == third == ""
    assert "representations must be finite" in second


def test_identical_records_are_embedded_once() -> None:
    records = make_records(load_parts("breast_cancer"), 0.05, 999)
    features = records.parts.train_features
    assert len(np.unique(records.distinct, axis=0)) == len(records.distinct)
    assert np.array_equal(records.distinct[records.forget], features[records.partition.forget])
    assert np.array_equal(records.distinct[records.gallery], features[records.partition.retain])


def test_the_original_is_trained_once_for_all_fractions(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    import ruler.experiment.protocol as module

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
    ProtocolBench("breast_cancer", workplace).export(SCRUB, tmp_path)
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


def test_members_of_an_ensemble_job_are_what_its_cells_need() -> None:
    cells = (
        Cell("own", "breast_cancer", "scrub", 0.05, 0, 5e-4, engine="ensemble"),
        Cell("own", "breast_cancer", "oracle", 0.1, 1, engine="ensemble"),
    )
    models, place = EnsembleBench(Job(cells), Workplace())._trained()
    assert set(place) == {(0, None), (0, (0.05, 999)), (1, (0.1, 999))}
    assert len(models) == 3
