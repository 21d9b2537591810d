"""Nearest record outside a set, for sets that take the forget set's role."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray, IndexArray, Neighbors

Labels = npt.NDArray[np.bool_]
FindNearest = Callable[[IndexArray, Labels], FloatArray]
"""(rows, in_set) -> similarity of each row to its nearest row outside the set, itself left out."""


def nearest_outside(graph: Neighbors, in_set: Labels, find_nearest: FindNearest) -> FloatArray:
    """Similarity of every row to its nearest row outside a set.

    Args:
        graph: (n, k) neighbours of every row, itself left out.
        in_set: (n,) whom to leave out.
        find_nearest: Searches for rows whose k neighbours are all in the set.
    """
    is_outside = ~in_set[graph.index]
    place = is_outside.argmax(axis=1)
    nearest = np.take_along_axis(graph.similarity, place[:, None], axis=1)[:, 0]
    missed = np.flatnonzero(~np.take_along_axis(is_outside, place[:, None], axis=1)[:, 0])
    if len(missed):
        nearest[missed] = find_nearest(missed, in_set)
    return nearest
