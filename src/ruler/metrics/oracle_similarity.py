"""M1, oracle-comparison similarity: does the unlearned model place a record where the oracle places it?"""

from typing import Any

import numpy as np

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows, unit_rows
from ruler.core.checks import as_matrix, block_rows_for, check_same_shape, measure_norms
from ruler.core.types import FloatArray


def cosine_similarity(a: Any, b: Any) -> FloatArray:
    """How similar is row i of ``a`` to row i of ``b``?

    Eq. 1, computed as 1 - |a - b|^2 / 2 over rows of norm 1, so that identical rows give exactly 1 and a row's value
    does not depend on the rows beside it. An all-zero row has similarity 0 to everything.

    Args:
        a: (n, p).
        b: (n, p).

    Returns:
        (n,) float64 in [-1, 1].

    Raises:
        InputError: Not 2-D, empty, NaN or inf, norms out of range, or shapes that differ.

    Example:
        >>> cosine_similarity([[1.0, 0.0], [3.0, 4.0]], [[2.0, 0.0], [4.0, -3.0]]).round(12).tolist()
        [1.0, 0.0]
    """
    return compare_rows(a, b, ("a", "b"))


def compare_rows(a: Any, b: Any, names: tuple[str, str]) -> FloatArray:
    """`cosine_similarity` whose errors speak of the caller's own arguments."""
    left, right = as_matrix(a, names[0]), as_matrix(b, names[1])
    check_same_shape(left.shape, right.shape, names)
    left_norms, right_norms = measure_norms(left, names[0]), measure_norms(right, names[1])
    similarity = np.empty(len(left))
    for start, stop in iterate_blocks(len(left), block_rows_for(left.shape[1])):
        rows = slice(start, stop)
        similarity[rows] = similarity_of_unit_rows(
            unit_rows(left[rows].astype(np.float64), left_norms[rows]),
            unit_rows(right[rows].astype(np.float64), right_norms[rows]),
        )
    return similarity


def oracle_similarity(unlearned_forget: Any, oracle_forget: Any) -> FloatArray:
    """How similar is each forget record in the unlearned model to itself in the oracle?

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        oracle_forget: (n, p) the same records, in the same order, in the oracle.

    Returns:
        (n,) similarities in [-1, 1], one a record; their mean is M1.

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> oracle_similarity([[1.0, 0.0]], [[0.6, 0.8]]).round(12).tolist()
        [0.6]
    """
    return compare_rows(unlearned_forget, oracle_forget, ("unlearned_forget", "oracle_forget"))


def m1(unlearned_forget: Any, oracle_forget: Any) -> float:
    """On average, how close are the forget records to where the oracle places them? (M1, Eq. 2)

    M1 = mean over forget records of sim(unlearned, oracle). It has no fixed null: see `m2`.

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        oracle_forget: (n, p) the same records in the oracle.

    Returns:
        A number in [-1, 1]; 1 means the same place.

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> m1([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
        0.5
    """
    return float(oracle_similarity(unlearned_forget, oracle_forget).mean())
