"""A cell's row holds what the public metrics say of its models, from either engine."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ruler.core.types import Predictions
from ruler.experiment.cell import MeasuredModel, Scores, Workplace, divide_by_norms, measure_cell, run_job
from ruler.experiment.grid import Cell, Job, list_cells
from ruler.experiment.settings import StudySettings
from ruler.experiment.tabular.measure import load_parts, make_records
from ruler.metrics import cosine_similarity, m1, m2, m3, m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.training.classifier import train_tabular
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


class Canned:
    """An engine whose models are given."""

    def __init__(self, **models: MeasuredModel) -> None:
        self.models = models

    def count_forget(self, cell: Cell) -> int:
        return 5

    def measure_original(self, cell: Cell) -> MeasuredModel:
        return self.models["original"]

    def measure_oracle(self, cell: Cell, seed: int) -> MeasuredModel:
        return self.models["oracle"]

    def measure_unlearned(self, cell: Cell) -> MeasuredModel:
        return self.models["unlearned"]

    def audit(self, model: MeasuredModel, *, oracle: MeasuredModel, original: MeasuredModel | None = None) -> Scores:
        return {"verdict": "inconclusive"}


def test_comparisons_are_those_of_the_metrics() -> None:
    rows = dict(zip(("original", "oracle", "unlearned"), np.random.default_rng(0).normal(size=(3, 12, 4)), strict=True))
    measured = {name: MeasuredModel(divide_by_norms(own), 5, {"m4": 0.5}) for name, own in rows.items()}
    forget, retain = ({name: own[part] for name, own in rows.items()} for part in (slice(5), slice(5, None)))
    similarity = cosine_similarity(forget["unlearned"], forget["oracle"])
    assert measure_cell(SCRUB, Canned(**measured)) == {
        "n_forget": 5,
        "m4": 0.5,
        "m1": m1(forget["unlearned"], forget["oracle"]),
        "m2": m2(forget["unlearned"], forget["oracle"], retain["unlearned"], retain["oracle"]),
        "m2_mean_baseline": (similarity - cosine_similarity(retain["unlearned"], retain["oracle"]).mean()).mean(),
        "m3": m3(forget["unlearned"], forget["original"], forget["oracle"]),
        "verdict": "inconclusive",
    }
