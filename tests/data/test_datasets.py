import dataclasses

import pytest

from ruler.core.errors import DataMismatchError
from ruler.data import DATASETS, Dataset


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
