"""The four diagnostic studies run from data to table in their smallest form."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Verdict
from ruler.cli.app import make_app
from ruler.core.errors import InputError
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.diagnostic.data import SMOKE_IMAGES, SMOKE_PEOPLE, SMOKE_ROWS, load_data
from ruler.experiment.executors import EXECUTORS
from ruler.experiment.grid import group_jobs, list_cells
from ruler.experiment.rows import Provenance
from ruler.experiment.run import RESULTS_FILE, STUDY_FILE, RunSettings, run_studies
from ruler.experiment.store import ResultStore
from ruler.experiment.studies import choose_studies, shrink_studies
from ruler.models.language_models import resolve_language_model
from ruler.testing.executors import InProcessExecutor


def run_small(name: str, *, datasets: tuple[str, ...], methods: tuple[str, ...], workplace: Workplace) -> list[Outcome]:
    (study,) = shrink_studies(choose_studies(name))
    study = replace(study, datasets=datasets, methods=methods, forget_fractions=study.forget_fractions[-1:])
    jobs = group_jobs(list_cells(study))
    return [outcome for job in jobs for outcome in run_job(job, workplace)]


def check(outcomes: list[Outcome]) -> None:
    assert outcomes
    for outcome in outcomes:
        assert outcome.scores is not None, outcome.details
        assert 0 <= float(outcome.scores["m4"]) <= 1
        assert 0 <= float(outcome.scores["m4_held_out"]) <= 1
        is_audited = outcome.cell.method != "oracle"
        assert ("m2" in outcome.scores) == ("verdict" in outcome.scores) == is_audited
        if is_audited:
            assert outcome.scores["verdict"] in get_args(Verdict)
            assert {
                "m2_effect",
                "m4_effect",
                "norm_effect",
                "loss_effect",
                "outputs_verdict",
                "layers_verdict",
                "damage_similarity",
            } <= outcome.scores.keys()
            assert set(filter(None, str(outcome.scores["seen"]).split(","))) <= CONTRASTS.keys()


@pytest.mark.usefixtures("smoke_data")
def test_large_tables(tmp_path: Path) -> None:
    outcomes = run_small(
        "large-tabular",
        datasets=("higgs",),
        methods=("neggrad_plus", "bad_teacher"),
        workplace=Workplace(tmp_path),
    )
    check(outcomes)
    assert {outcome.cell.architecture for outcome in outcomes} == {"tabular_mlp", "residual_mlp", "ft_transformer"}


@pytest.mark.usefixtures("smoke_data")
def test_images(tmp_path: Path) -> None:
    outcomes = run_small(
        "images",
        datasets=("svhn",),
        methods=("gradient_ascent", "scrub"),
        workplace=Workplace(tmp_path),
    )
    check(outcomes)
    assert {outcome.cell.architecture for outcome in outcomes} == {"small_cnn", "resnet18"}


@pytest.mark.usefixtures("smoke_data")
def test_faces_come_with_placebos_at_the_level_of_people(tmp_path: Path) -> None:
    outcomes = run_small(
        "faces",
        datasets=("lfw",),
        methods=("fine_tuning",),
        workplace=Workplace(tmp_path),
    )
    check(outcomes)
    choices = {outcome.cell.forget_choice: outcome.scores for outcome in outcomes if outcome.cell.method == "original"}
    assert set(choices) == {"random", "most_frequent", "single", "pair"}
    for choice, scores in choices.items():
        assert scores is not None
        assert 0 < float(scores["m4_placebo_p"]) <= 1
        assert scores["n_groups"] == {"single": 1, "pair": 2}.get(choice, scores["n_groups"])


@pytest.mark.usefixtures("smoke_data")
def test_clinical_text(tmp_path: Path, language_model: Path) -> None:
    outcomes = run_small(
        "clinical",
        datasets=("mtsamples", "mtsamples_rows"),
        methods=("neggrad_plus", "scrub"),
        workplace=Workplace(tmp_path / "models", language_model=str(language_model)),
    )
    check(outcomes)
    (model,) = {str(outcome.scores["model"]) for outcome in outcomes if outcome.scores}
    assert model == resolve_language_model(language_model).description
    assert model.startswith("tiny (")
    bare = [outcome.cell.method for outcome in outcomes if outcome.cell.dataset == "mtsamples_rows"]
    assert sorted(bare) == ["oracle", "original"]
    heads = list((tmp_path / "models").rglob("*.safetensors"))
    assert len(heads) == 1  # documents by row and distinct ones lend the same sentences to it


@pytest.mark.usefixtures("made_up_data")
def test_a_folder_of_results_takes_no_second_language_model(tmp_path: Path, language_model: Path) -> None:
    studies = shrink_studies(choose_studies("clinical"))
    first = list_cells(studies[0])[0]
    made_by = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")
    with ResultStore(tmp_path / RESULTS_FILE) as store:
        store.add(Outcome(first, {"m4": 0.5, "model": "another"}, 0.1), made_by)
    with pytest.raises(
        InputError, match="must hold texts in one language model; got rows of another and a run of tiny"
    ):
        run_studies(studies, RunSettings(tmp_path, language_model=str(language_model)))
    assert not (tmp_path / STUDY_FILE).exists()


@pytest.mark.usefixtures("made_up_data")
def test_made_up_sets_serve_all_studies_where_the_real_ones_are_not(language_model: Path) -> None:
    """Runs where the real sets are, too, so that what other places rely on is known to work."""
    sizes = {
        name: len(load_data(name, "smoke", str(language_model)).inputs)
        for name in ("higgs", "svhn", "lfw", "mtsamples", "mtsamples_rows")
    }
    assert (sizes["higgs"], sizes["svhn"]) == (SMOKE_ROWS, SMOKE_IMAGES * 3 // 2)
    assert sizes["mtsamples_rows"] > sizes["mtsamples"] > 0
    assert sizes["lfw"] > SMOKE_PEOPLE


@pytest.mark.usefixtures("made_up_data")
def test_the_command_goes_from_data_to_the_page(tmp_path: Path) -> None:
    EXECUTORS.register("in-process", InProcessExecutor)
    words = ["reproduce", "images", "--smoke", "--datasets", "svhn", "--methods", "scrub", "--executor", "in-process"]
    result = CliRunner().invoke(make_app(), [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "6 of 6 cells, 6 new" in result.output
    page = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    section = page.split("## Verdicts of the audit")[1].split("\n## ")[0]
    assert "`images` is a smoke run on few records" in section
    for model in ("Three-layer CNN", "ResNet-18"):
        for method in ("Original", "SCRUB", "Oracle"):
            assert f"| SVHN | {model} | 5% | {method} |" in section
    for ending, method in (("csv", "scrub"), ("md", "SCRUB"), ("tex", "SCRUB")):
        assert method in (tmp_path / "tables" / f"table_13.{ending}").read_text(encoding="utf-8")
