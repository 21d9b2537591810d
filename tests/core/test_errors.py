"""Every error of the package is a `RulerError`, and what a caller would expect of Python besides."""

import pytest

from ruler.core import errors
from ruler.core.errors import DivergedError, RulerError, shorten


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InputError", ValueError),
        ("UnknownNameError", ValueError),
        ("FileFormatError", ValueError),
        ("DataMismatchError", ValueError),
        ("DownloadError", ConnectionError),
        ("LayerNotFoundError", LookupError),
        ("UnstableModelError", RuntimeError),
        ("DivergedError", RuntimeError),
        ("CheckpointError", RuntimeError),
        ("ClusterError", RuntimeError),
        ("MissingPackageError", ImportError),
    ],
)
def test_errors_are_ours_and_pythons(name, builtin):
    assert issubclass(getattr(errors, name), RulerError)
    assert issubclass(getattr(errors, name), builtin)


def test_a_diverged_run_hands_over_its_last_good_state():
    assert DivergedError("loss").last_good_state is None
    assert DivergedError("loss", last_good_state={"weight": 1}).last_good_state == {"weight": 1}


def test_errors_of_others_become_one_short_sentence():
    assert shorten(ValueError(" two\n lines.")) == "two lines."
    assert shorten(ValueError()) == "ValueError."
    assert len(shorten(ValueError("x" * 100_000))) < 1000
