"""M4, percentile rank: do forget records blend in among retain records, by the unlearned model alone?"""

from typing import Any

import numpy as np

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.neighbors.search import search


def percentile_rank(forget: Any, retain: Any) -> FloatArray:
    """What share of retain records has a nearest retain record no closer than this forget record has?

    s_f(x) = largest similarity of forget record x to a retain record (Eq. 5); s_r(x') = the same for retain record x',
    itself left out (Eq. 6); rank(x) = share of retain records with s_r <= s_f(x) (Eq. 7). Similarities closer than
    1e-12 count as equal.

    Args:
        forget: (n, p) forget records in the unlearned model.
        retain: (m, p) retain records in the unlearned model, m >= 2; all of them are used.

    Returns:
        (n,) ranks in [0, 1], one a forget record; their mean is M4.

    Raises:
        InputError: Fewer than 2 retain rows, or as `find_neighbors`.

    Example:
        >>> retain = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]
        >>> percentile_rank([[1.0, 0.0], [-1.0, 0.0]], retain).round(2).tolist()
        [1.0, 0.0]
    """
    shape = getattr(retain, "shape", None) or np.shape(retain)
    if tuple(shape[:1]) == (1,):
        raise InputError("retain must have at least 2 rows to rank against; got 1. Give more retain records.")
    to_forget = search(forget, retain, names=("forget", "retain")).similarity[:, 0]
    to_retain = search(retain, retain, names=("retain", "retain"), exclude_self=True).similarity[:, 0]
    return rank_within(to_forget, to_retain)


def rank_within(values: FloatArray, reference: FloatArray) -> FloatArray:
    """Share of ``reference`` that is at most each value, ties within 1e-12 included: the sum in Eq. 7.

    Example:
        >>> rank_within(np.array([0.5, 2.0]), np.array([0.1, 0.5, 0.9, 1.0])).tolist()
        [0.5, 1.0]
    """
    return np.searchsorted(np.sort(reference), values + TIE_SLACK, side="right") / len(reference)


def m4(forget: Any, retain: Any) -> float:
    """On average, where do forget records rank among retain records by their nearest retain record? (M4, Eq. 5-7)

    The paper reads 0.5 as erased, above as residual memorisation, below as over-displacement. Its null does not hold in
    general: `<=` counts ties on one side, and all forget ranks share one gallery.

    Args:
        forget: (n, p) forget records in the unlearned model.
        retain: (m, p) retain records in the unlearned model, m >= 2; all of them are used.

    Returns:
        A number in [0, 1].

    Raises:
        InputError: Fewer than 2 retain rows, or as `find_neighbors`.

    Example:
        >>> m4([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        1.0
    """
    return float(percentile_rank(forget, retain).mean())
