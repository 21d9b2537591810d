"""Tables that come with scikit-learn."""

import sys

import numpy as np
import pytest

from ruler.core.errors import FileFormatError, MissingPackageError
from ruler.data.bundled import read_breast_cancer, read_bundled


def test_bundled_tables_are_those_that_scikit_learn_loads():
    from sklearn.datasets import load_breast_cancer, load_digits

    found, expected = read_breast_cancer(), load_breast_cancer()
    np.testing.assert_array_equal(found.features, expected.data, strict=True)
    np.testing.assert_array_equal(found.target, expected.target)
    assert found.feature_names == tuple(expected.feature_names)
    assert found.classes == tuple(expected.target_names)
    digits = read_bundled("digits.csv.gz", "a test")
    for part, wanted in zip((digits[:, :-1], digits[:, -1]), load_digits(return_X_y=True), strict=True):
        np.testing.assert_array_equal(part, wanted)


def test_bundled_tables_need_scikit_learn_but_do_not_load_it(run_python, monkeypatch):
    load = "from ruler.data import load_tabular; load_tabular('breast_cancer')"
    assert run_python(f"import sys; {load}; print('sklearn' in sys.modules)") == "False\n"
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="loading Breast Cancer needs the package 'sklearn'"):
        read_breast_cancer()


def test_a_scikit_learn_without_the_file_is_said_in_one_line():
    with pytest.raises(FileFormatError, match=r"scikit-learn must hold none\.csv; got none at .*none\.csv\."):
        read_bundled("none.csv", "a test")
