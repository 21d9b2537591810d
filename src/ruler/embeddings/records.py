"""Whether two sets of embeddings speak of the same records."""

from ruler.core.errors import InputError
from ruler.core.types import Embeddings


def check_same_ids(a: Embeddings, b: Embeddings, names: tuple[str, str] = ("a", "b")) -> None:
    """Both hold the same records in the same order, as every comparison of models needs.

    Args:
        a: Embeddings from one model.
        b: Embeddings from another.
        names: What the caller calls them, for the error.

    Raises:
        InputError: Different counts or ids; says how many differ and which is the first.

    Example:
        >>> import numpy as np
        >>> check_same_ids(Embeddings(np.eye(2), ids=["ann", "bob"]), Embeddings(np.eye(2), ids=["ann", "eve"]))
        Traceback (most recent call last):
        ruler.core.errors.InputError: a and b must hold the same records in the same order; got 1 of 2 rows
        with different ids, the first is row 1: 'bob' and 'eve'. Sort both by id, or embed both from the same data.
    """
    rule = f"{names[0]} and {names[1]} must hold the same records in the same order"
    advice = "Sort both by id, or embed both from the same data."
    if len(a) != len(b):
        raise InputError(f"{rule}; got {len(a)} and {len(b)} records. {advice}")
    pairs = zip(a.ids.tolist(), b.ids.tolist(), strict=True)
    differing = [(row, left, right) for row, (left, right) in enumerate(pairs) if left != right]
    if differing:
        row, left, right = differing[0]
        raise InputError(
            f"{rule}; got {len(differing)} of {len(a)} rows with different ids, "
            f"the first is row {row}: {left!r} and {right!r}. {advice}"
        )
