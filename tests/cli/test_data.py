import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ruler.cli.data
from ruler.cli.data import app
from ruler.core.errors import RulerError
from ruler.data import DATASETS


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    return lambda *words: CliRunner().invoke(app, list(words))


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.delenv("RULER_DATA", raising=False)


def _put_wrong_phoneme(folder: Path) -> Path:
    (folder / "tabular").mkdir(parents=True)
    path = folder / "tabular" / "phoneme.csv.gz"
    import pandas as pd

    pd.DataFrame({"V1": [1.0, 2.0], "Class": [1, 2]}).to_csv(path, index=False)
    return path


def test_list_shows_every_set_and_its_place(run, bare, tmp_path):
    _put_wrong_phoneme(tmp_path)
    answer = run("list")
    assert answer.exit_code == 0
    rows = {line.split("│")[1].strip(): line for line in answer.output.splitlines() if line.startswith("│")}
    assert set(rows) == set(DATASETS)
    assert "to download" in rows["adult"]
    assert "48,842" in rows["adult"]
    assert "cache" in rows["phoneme"]
    assert "scikit-learn" in rows["breast_cancer"]
    kinds = [rows[name].split("│")[2].strip() for name in ("adult", "cifar10", "lfw", "mtsamples")]
    assert kinds == ["table", "images", "faces", "text"]
    assert "51,233 x 28 (of the paper's 100,000 rows)" in rows["higgs"]
    assert "to download" in rows["cifar10"]
    assert "to get by hand" in rows["mtsamples"]
    assert "RULER_DATA: not set" in answer.output
    assert f"cache: {tmp_path}" in answer.output


def test_check_passes_on_the_real_files(run):
    if not os.environ.get("RULER_DATA"):
        pytest.skip("RULER_DATA does not name a folder with tabular/*.csv.gz")
    answer = run("check", "wine_quality", "breast_cancer")
    assert answer.exit_code == 0
    assert "wine_quality: ok, 1599 rows, 11 features, content as published" in answer.output
    assert run("fetch", "wine_quality").output == "wine_quality: here already\n"


def test_check_knows_every_kind(run):
    if not os.environ.get("RULER_DATA"):
        pytest.skip("RULER_DATA does not name a folder with images/*.npz and text/*.csv.gz")
    answer = run("check", "higgs", "cifar10", "lfw", "mtsamples")
    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        "higgs: ok, 51233 rows, 28 features, content as measured here",
        "cifar10: ok, 10000 + 2000 images, content as measured here",
        "lfw: ok, 4324 images of 158 people, content as measured here",
        "mtsamples: ok, 2357 documents, 84349 sentences, content as measured here",
    ]


def test_what_cannot_be_downloaded_says_how_to_get_it(run, bare):
    answer = run("fetch", "mtsamples")
    assert answer.exit_code == 2
    assert "put it at text/mtsamples.csv.gz in the folder that RULER_DATA names" in answer.stderr


def test_check_says_what_differs(run, bare, tmp_path):
    _put_wrong_phoneme(tmp_path)
    answer = run("check")
    assert answer.exit_code == 2
    assert "rows: 2 instead of 5404; features: 1 instead of 5" in answer.stderr
    assert "Traceback" not in answer.output
    assert "breast_cancer: ok" in answer.stdout


def test_absent_set_fails_only_when_it_was_asked_for(run, bare):
    assert run("check").exit_code == 0
    answer = run("check", "adult")
    assert answer.exit_code == 2
    assert "adult: not here. Run: ruler data fetch adult" in answer.stderr


@pytest.mark.parametrize("words", [["check", "adullt"], ["fetch", "adullt"]])
def test_unknown_name(run, words):
    with pytest.raises(RulerError, match=r"Did you mean 'adult'\?"):
        raise run(*words).exception


@pytest.mark.parametrize("words", [["fetch"], ["fetch", "adult", "--all"]])
def test_fetch_needs_names_or_all(run, words):
    with pytest.raises(RulerError, match="fetch must be given either names or --all"):
        raise run(*words).exception


def test_fetch_replaces_a_wrong_copy_in_the_cache(run, bare, tmp_path, monkeypatch):
    path = _put_wrong_phoneme(tmp_path)
    fetched = []
    monkeypatch.setattr(ruler.cli.data, "fetch_dataset", lambda name, progress: fetched.append(name) or path)
    answer = run("fetch", "phoneme", "breast_cancer")
    assert (answer.exit_code, fetched) == (0, ["phoneme"])
    assert answer.output == f"phoneme: {path}\nbreast_cancer: here already\n"


def test_fetch_leaves_a_wrong_file_of_the_user_alone(run, tmp_path, monkeypatch):
    _put_wrong_phoneme(tmp_path / "mine")
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "mine"))
    answer = run("fetch", "phoneme")
    assert answer.exit_code == 2
    assert "Phoneme must be the paper's version; got another" in answer.stderr


def test_fetch_goes_on_after_a_failure(run, bare, monkeypatch):
    def fail(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    monkeypatch.setattr("requests.get", fail)
    answer = run("fetch", "--all")
    assert answer.exit_code == 2
    assert answer.stderr.count("no route to host") == 15
    assert "breast_cancer: here already" in answer.stdout


@pytest.mark.parametrize("verb", ["list", "fetch", "check"])
def test_help_has_an_example(run, verb):
    assert f"Example: ruler data {verb}" in run(verb, "--help").output


def test_labels_go_with_faces_that_are_downloaded(run, bare, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(ruler.cli.data, "fetch_dataset", lambda name, **words: given.append((name, words)) or "there")
    answer = run("fetch", "lfw", "--labels", "people.csv")
    assert (answer.exit_code, answer.output) == (0, "lfw: there\n")
    assert given == [("lfw", {"labels": Path("people.csv"), "progress": True})]
    for words in (["adult"], ["lfw", "adult"]):
        with pytest.raises(RulerError, match="--labels must go with lfw alone; got"):
            raise run("fetch", *words, "--labels", "people.csv").exception


def test_labels_for_a_set_of_the_users_own_are_refused(run, tmp_path, monkeypatch):
    (tmp_path / "mine" / "images").mkdir(parents=True)
    (tmp_path / "mine" / "images" / "lfw.npz").write_bytes(b"mine")
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "mine"))
    with pytest.raises(RulerError, match=r"lfw\.npz, which is read first\. Add the array gender to it\."):
        raise run("fetch", "lfw", "--labels", "people.csv").exception


def test_labels_that_cannot_be_read_end_in_one_line(run, bare):
    answer = run("fetch", "lfw", "--labels", "absent.csv")
    assert answer.exit_code == 2
    assert answer.stderr.startswith("lfw: path must be an existing file; got 'absent.csv'.")
