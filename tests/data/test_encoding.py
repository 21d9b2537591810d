import decimal

import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import InputError
from ruler.data.encoding import encode_classes, encode_features


def test_text_is_coded_in_ascii_order_and_missing_text_comes_last():
    table = pd.DataFrame({"a": ["b", "B", None, "?", "a", "B"]})
    assert encode_features(table)[:, 0].tolist() == [3, 1, 4, 0, 2, 1]


def test_missing_number_becomes_the_median_of_its_column():
    table = pd.DataFrame({"a": [1.0, np.nan, 2.0, 10.0], "b": pd.array([4, None, 1, 1], dtype="Int64")})
    assert encode_features(table)[1].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([True, False]), [1, 0]),
        (pd.Series([True, None, False], dtype=object), [1, 2, 0]),
        (pd.Series(["10", "9"], dtype="category"), [0, 1]),
        (pd.Series([10, 9], dtype="category"), [10, 9]),
        (pd.Series([decimal.Decimal("1.5"), None, decimal.Decimal(2)], dtype=object), [1.5, 1.75, 2]),
        (pd.Series(pd.to_datetime(["2024-03-01", "2023-01-01"])), [1, 0]),
        (pd.Series([2, "1", "2"], dtype=object), [1, 0, 1]),
    ],
)
def test_column_types_beyond_plain_numbers_and_text(column, expected):
    assert encode_features(pd.DataFrame({"a": column}))[:, 0].tolist() == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, None], "column 'a' must hold at least one value; got none"),
        ([1.0, np.inf], "column 'a' must be finite; got inf in 1 rows"),
        ([[1, 2], [3, 4]], "column 'a' must hold numbers or text; got list"),
        ([b"x", b"y"], "column 'a' must hold numbers or text; got bytes"),
    ],
)
def test_column_that_cannot_be_encoded(values, message):
    with pytest.raises(InputError, match=message):
        encode_features(pd.DataFrame({"a": pd.Series(values, dtype=None if values[0] == 1.0 else object)}))


def test_classes_are_sorted_by_value_or_by_ascii():
    codes, classes = encode_classes(pd.Series([10, 9, 10, 2]), "grade")
    assert (codes.tolist(), classes) == ([2, 1, 2, 0], ("2", "9", "10"))
    codes, classes = encode_classes(pd.Series(["10", "9", "b"]), "grade")
    assert (codes.tolist(), classes) == ([0, 1, 2], ("10", "9", "b"))
    assert codes.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["yes", None, None], "target column 'y' must have a label in every row; got 2 rows without"),
        ([0.5, 1.0], "target column 'y' must hold classes; got measurements, such as 0.5"),
        ([np.inf, 1.0], "target column 'y' must hold classes; got measurements, such as inf"),
        (["yes", "yes"], "target column 'y' must hold at least two classes; got only 'yes'"),
    ],
)
def test_labels_that_are_no_classes(labels, message):
    with pytest.raises(InputError, match=message):
        encode_classes(pd.Series(labels), "y")
