"""The four diagnostic studies run from data to table in their smallest form."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ruler.cli.judge import judge
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.grid import group_jobs, list_cells
from ruler.experiment.studies import choose_studies, shrink_studies

DATA = Path(os.environ.get("RULER_DATA", "/nowhere"))
WORDS = ("patient", "pain", "heart", "blood", "chest", "left", "right", "history", "exam", "normal")


def run_small(
    name: str, file: str, *, datasets: tuple[str, ...], methods: tuple[str, ...], workplace: Workplace
) -> list[Outcome]:
    if not (DATA / file).is_file():
        pytest.skip(f"RULER_DATA holds no {file}: set it to a folder with the paper's data")
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
        assert outcome.scores["verdict"] in {"erased", "residual", "displaced", "inconclusive", "invalid"}
        assert ("m2" in outcome.scores) == (outcome.cell.method != "oracle")


def test_large_tables(tmp_path: Path) -> None:
    outcomes = run_small(
        "large-tabular",
        "tabular/higgs.csv.gz",
        datasets=("higgs",),
        methods=("neggrad_plus", "bad_teacher"),
        workplace=Workplace(tmp_path, judge=judge),
    )
    check(outcomes)
    assert {outcome.cell.architecture for outcome in outcomes} == {"tabular_mlp", "residual_mlp", "ft_transformer"}


def test_images(tmp_path: Path) -> None:
    outcomes = run_small(
        "images",
        "images/svhn.npz",
        datasets=("svhn",),
        methods=("gradient_ascent", "scrub"),
        workplace=Workplace(tmp_path, judge=judge),
    )
    check(outcomes)
    assert {outcome.cell.architecture for outcome in outcomes} == {"small_cnn", "resnet18"}


def test_faces_come_with_placebos_at_the_level_of_people(tmp_path: Path) -> None:
    outcomes = run_small(
        "faces",
        "images/lfw.npz",
        datasets=("lfw",),
        methods=("fine_tuning",),
        workplace=Workplace(tmp_path, judge=judge),
    )
    check(outcomes)
    choices = {outcome.cell.forget_choice: outcome.scores for outcome in outcomes if outcome.cell.method == "original"}
    assert set(choices) == {"random", "most_frequent", "single"}
    assert choices["single"] is not None
    assert choices["single"]["n_groups"] == 1
    for scores in choices.values():
        assert scores is not None
        assert 0 < float(scores["m4_placebo_p"]) <= 1


def test_clinical_text(tmp_path: Path) -> None:
    folder = make_language_model(tmp_path / "tiny")
    outcomes = run_small(
        "clinical",
        "text/mtsamples.csv.gz",
        datasets=("mtsamples", "mtsamples_rows"),
        methods=("neggrad_plus", "scrub"),
        workplace=Workplace(tmp_path / "models", judge=judge, language_model=str(folder)),
    )
    check(outcomes)
    assert {str(outcome.scores["model"]) for outcome in outcomes if outcome.scores} == {"tiny"}
    bare = [outcome.cell.method for outcome in outcomes if outcome.cell.dataset == "mtsamples_rows"]
    assert sorted(bare) == ["oracle", "original"]
    heads = list((tmp_path / "models").rglob("*.safetensors"))
    assert len(heads) == 1  # documents by row and distinct ones lend the same sentences to it


def make_language_model(folder: Path) -> Path:
    """A tiny BERT without a language-model head, and its tokenizer, as ``save_pretrained`` leaves them."""
    transformers = pytest.importorskip("transformers")
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = [*special, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder
