import dataclasses

import numpy as np
import pytest

from ruler.core.errors import DataMismatchError, DownloadError, InputError
from ruler.data import DATASETS, Dataset, describe_dataset, fetch_dataset


def test_the_right_content_gets_our_note_whatever_it_says_of_itself():
    entry = DATASETS["svhn"]
    assert entry.verify(entry.content_hash, entry.home_note, "x") == entry.note
    assert dataclasses.replace(entry, content_hash="").verify("0" * 64, "", "x") == entry.note


def test_a_marked_download_gets_its_own_note():
    entry = DATASETS["svhn"]
    assert entry.verify("0" * 64, entry.home_note, "x") == entry.home_note


@pytest.mark.parametrize("mark", ["", "something else"])
def test_anything_else_is_refused(mark):
    for entry in (DATASETS["svhn"], dataclasses.replace(DATASETS["svhn"], home_note="")):
        with pytest.raises(
            DataMismatchError, match=r"from here .*instead of 4461d8f8299b.* run: ruler data fetch svhn"
        ):
            entry.verify("0" * 64, mark, "here")


def test_a_kind_must_say_its_sizes():
    bare = Dataset(key="x", title="X", read=lambda: None)
    assert bare.file is None
    for field in ("size", "n_records"):
        with pytest.raises(NotImplementedError):
            getattr(bare, field)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    monkeypatch.delenv("RULER_DATA", raising=False)
    return tmp_path


def test_every_kind_is_there():
    assert {entry.kind for entry in DATASETS.values()} == {"table", "images", "faces", "text", "prompts"}
    assert DATASETS["covertype"].size == "581,012 x 54"
    assert DATASETS["cifar10"].size == "10,000 + 2,000 of 32 x 32"
    assert DATASETS["lfw"].size == "4,324 of 158 people"
    assert DATASETS["mtsamples"].size == "4,966 texts, 2,357 distinct"
    assert DATASETS["tofu"].size == "4,000 prompts, 200 groups"


@pytest.mark.parametrize(
    ("key", "description"),
    [
        ("phoneme", "5404 rows, 5 features, content as published"),
        ("higgs", "51233 rows, 28 features, content as measured here"),
        ("svhn", "10000 + 2000 images, content as measured here"),
        ("lfw", "4324 images of 158 people, content as measured here"),
        ("mtsamples", "2357 documents, 84349 sentences, content as measured here"),
    ],
)
def test_real_files_are_described(real_data, monkeypatch, key, description):
    monkeypatch.setenv("RULER_DATA", str(real_data))
    assert describe_dataset(key) == description


@pytest.mark.parametrize("key", ["adult", "covertype", "cifar100", "lfw", "mtsamples"])
def test_what_is_not_here_is_not_downloaded_to_be_described(key):
    with pytest.raises(InputError, match=f"{key} must be on this machine; got no copy. Run: ruler data fetch {key}"):
        describe_dataset(key)


def test_downloaded_faces_are_described_with_what_they_lack(cache):
    (cache / "images").mkdir()
    note = DATASETS["lfw"].home_note
    fields = {
        "images": np.zeros((3, 2, 2, 3), np.uint8),
        "identity": np.array([0, 0, 1]),
        "names": np.array(["a", "b"]),
    }
    np.savez(cache / "images" / "lfw.npz", note=np.array(note), **fields)
    assert describe_dataset("lfw") == (
        "3 images of 2 people, without gender (give --labels to ruler data fetch), "
        f"not the content measured here: {note}"
    )
    np.savez(cache / "images" / "lfw.npz", **fields)
    with pytest.raises(DataMismatchError, match="LFW must be the copy"):
        describe_dataset("lfw")


def test_what_no_program_can_download_says_so(tmp_path):
    with pytest.raises(DownloadError, match="MTSamples must be put there by hand"):
        fetch_dataset("mtsamples")
    with pytest.raises(InputError, match=r"that can be downloaded; got 'breast_cancer'\. It comes with"):
        fetch_dataset("breast_cancer")
    with pytest.raises(
        InputError, match=r"labels must be omitted for datasets other than faces; got 'l\.csv' for 'adult'"
    ):
        fetch_dataset("adult", labels="l.csv")
