import os
import subprocess
import sys

import pytest

from ruler.core.errors import InputError
from ruler.data import DATASETS, TabularSet, list_datasets, load_dataset, load_tabular, register_dataset

PROTOCOL = {
    "adult": ("Adult Income", 1590, 48842, 14),
    "diabetes130": ("Diabetes 130-US", 4541, 101766, 49),
    "breast_cancer": ("Breast Cancer", None, 569, 30),
    "heart_disease": ("Heart Disease", 49, 303, 13),
    "german_credit": ("German Credit", 31, 1000, 20),
    "bank_marketing": ("Bank Marketing", 1461, 45211, 16),
    "wine_quality": ("Wine Quality", 40691, 1599, 11),
    "phoneme": ("Phoneme", 1489, 5404, 5),
    "magic": ("Magic Telescope", 1120, 19020, 10),
    "electricity": ("Electricity", 151, 45312, 8),
}


def test_the_primary_study_has_the_ten_tables_of_the_paper():
    entries = [DATASETS[key] for key in list_datasets("primary")]
    assert {s.key: (s.title, s.openml_id, s.n_rows, s.n_features) for s in entries} == PROTOCOL


def test_the_other_studies_have_theirs_in_the_papers_order():
    studies = ("large-tabular", "images", "faces", "clinical")
    assert [list_datasets(study) for study in studies] == [
        ("covertype", "higgs"),
        ("cifar10", "svhn", "cifar100"),
        ("lfw",),
        ("mtsamples", "mtsamples_rows"),
    ]
    assert list_datasets("") == ()


def test_sizes_are_those_of_the_protocol():
    images = [DATASETS[key] for key in list_datasets("images")]
    assert {(s.n_train, s.n_test, s.image_shape) for s in images} == {(10000, 2000, (32, 32, 3))}
    assert [len(set(s.classes)) for s in images] == [10, 10, 100]
    lfw = DATASETS["lfw"]
    assert (lfw.n_images, lfw.n_people, lfw.image_shape, lfw.classes) == (4324, 158, (62, 47, 3), ("female", "male"))
    n_records = {key: DATASETS[key].n_records for key in ("adult", "higgs", "cifar10", "lfw", "mtsamples")}
    assert n_records == {"adult": 39073, "higgs": 40986, "cifar10": 10000, "lfw": 3675, "mtsamples": 3000}


def test_every_dataset_stands_under_its_key_with_a_full_hash():
    assert [entry.key for entry in DATASETS.values()] == list(DATASETS)
    assert all(len(bytes.fromhex(entry.content_hash)) == 32 for entry in DATASETS.values())
    assert len({entry.content_hash for entry in DATASETS.values()}) == 21  # two are made of the same texts
    assert {key for key, entry in DATASETS.items() if entry.is_control} == {"mtsamples_rows"}


def test_a_dataset_that_is_not_the_papers_says_so():
    assert DATASETS["higgs"].size == "51,233 x 28 (of the paper's 100,000 rows)"
    assert "not the official one" in DATASETS["cifar100"].note
    assert "cropped again" in DATASETS["svhn"].note
    assert "2,357 are distinct" in DATASETS["mtsamples"].note
    assert {key for key, entry in DATASETS.items() if entry.home_note} == {"higgs", "cifar100", "svhn", "lfw"}


LOANS = """
from ruler.data import TabularSet, load_tabular

LOANS = TabularSet(
    key="loans",
    title="Loans",
    n_rows=60,
    n_features=3,
    study="primary",
    read=lambda: load_tabular({path!r}, target="default", ids="name"),
)
"""

ASK = r"""
from ruler.data import DATASETS, list_datasets, load_dataset, load_tabular
from ruler.experiment.settings import parse_studies
from ruler.experiment.studies import choose_studies, narrow_studies

assert "loans" not in list_datasets("primary"), "no dataset joins a study by itself"
assert not DATASETS.is_own("loans")
assert load_dataset("loans").content_hash == load_tabular("loans").content_hash
(study,) = parse_studies('[[study]]\nname = "own"\ndatasets = ["loans"]\nmethods = ["scrub"]', source="x")
assert study.datasets == ("loans",)
(study,) = narrow_studies(choose_studies("primary"), datasets=["loans"])
assert study.datasets == ("loans",)
assert "loans" not in choose_studies("primary")[0].datasets
print(load_tabular("loans").ids[0])
"""


@pytest.fixture
def loans(tmp_path, monkeypatch):
    """A package outside the repository that brings a dataset in one file."""
    rows = [f"n{i},{i % 7},{i % 5},{i * 0.5},{'yes' if i % 3 else 'no'}" for i in range(60)]
    (tmp_path / "loans.csv").write_text("name,a,b,c,default\n" + "\n".join(rows) + "\n")
    (tmp_path / "bank.py").write_text(LOANS.format(path=str(tmp_path / "loans.csv")))
    info = tmp_path / "bank-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bank\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ruler.datasets]\nloans = bank:LOANS\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))


def _run(*words):
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("loans")
def test_a_dataset_of_another_package_is_known_by_name_everywhere():
    answer = _run("-c", ASK)
    assert (answer.returncode, answer.stdout) == (0, "n0\n"), answer.stderr
    listed = _run("-m", "ruler", "data", "list")
    row = next(line for line in listed.stdout.splitlines() if "loans" in line)
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        *("loans", "table", "Loans", "60 x 3", "a package of yours", "a package")
    ]
    checked = _run("-m", "ruler", "data", "check", "loans")
    assert checked.stdout == "loans: ok, 60 rows, 3 features, content not verified\n"


@pytest.mark.slow
@pytest.mark.usefixtures("loans")
def test_a_study_runs_on_a_dataset_of_another_package(tmp_path):
    few = ("--datasets", "loans", "--seeds", "1", "--methods", "scrub", "--forget-fractions", "0.2", "--jobs", "1")
    answer = _run("-m", "ruler", "reproduce", "primary", *few, "--out", str(tmp_path / "out"))
    assert answer.returncode == 0, answer.stderr
    tables = "".join(path.read_text() for path in (tmp_path / "out" / "tables").glob("*.md"))
    assert "| Loans |" in tables


def test_a_dataset_is_registered_by_a_call_but_takes_no_name_of_ours():
    table = load_tabular("breast_cancer")
    own = TabularSet(key="own_cancer", title="Own", n_rows=569, n_features=30, read=lambda: table)
    assert register_dataset(own) is own
    assert len(load_dataset("own_cancer")) == 569
    with pytest.raises(InputError, match="dataset names must be unique; got 'adult' a second time"):
        register_dataset(TabularSet(key="adult", title="Mine", n_rows=1, n_features=1))
