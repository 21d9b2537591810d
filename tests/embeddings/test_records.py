"""Two sets of embeddings must speak of the same records."""

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.core.types import Embeddings
from ruler.embeddings import check_same_ids


def rows(*ids):
    return Embeddings(np.ones((len(ids), 2)), ids=list(ids))


def test_equal_ids_pass():
    check_same_ids(rows("a", "b"), rows("a", "b"))
    check_same_ids(rows(1, 2), Embeddings(np.ones((2, 2)), ids=np.array([1, 2], dtype=np.int32)))
    check_same_ids(rows("a", "b"), Embeddings(np.ones((2, 2)), ids=np.array(["a", "b"], dtype=object)))


def test_different_ids_are_counted_and_the_first_is_shown():
    with pytest.raises(
        InputError,
        match="oracle and unlearned must hold the same records in the same order; "
        "got 2 of 3 rows with different ids, the first is row 1: 'b' and 'c'",
    ):
        check_same_ids(rows("a", "b", "c"), rows("a", "c", "b"), ("oracle", "unlearned"))
    with pytest.raises(InputError, match="the first is row 0: 1 and '1'"):
        check_same_ids(rows(1, 2), rows("1", "2"))


def test_different_counts_are_refused():
    with pytest.raises(InputError, match="got 2 and 1 records"):
        check_same_ids(rows("a", "b"), rows("a"))
