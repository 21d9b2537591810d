import dataclasses

import pytest

from ruler.core.errors import DataMismatchError
from ruler.data import IMAGE_SETS
from ruler.data.verification import verify_content


def test_the_right_content_gets_our_note_whatever_it_says_of_itself():
    entry = IMAGE_SETS["svhn"]
    assert verify_content(entry, entry.content_hash, entry.home_note, "x") == entry.note


def test_a_marked_download_gets_its_own_note():
    entry = IMAGE_SETS["svhn"]
    assert verify_content(entry, "0" * 64, entry.home_note, "x") == entry.home_note


@pytest.mark.parametrize("mark", ["", "something else"])
def test_anything_else_is_refused(mark):
    for entry in (IMAGE_SETS["svhn"], dataclasses.replace(IMAGE_SETS["svhn"], home_note="")):
        with pytest.raises(
            DataMismatchError, match=r"from here .*instead of 4461d8f8299b.* run: ruler data fetch svhn"
        ):
            verify_content(entry, "0" * 64, mark, "here")
