"""M1 to M4: one number per forget record, and its mean. The only place where they are spelled.

Arguments are (n, p) arrays, named after the model and the records: ``oracle_forget`` holds the forget records in the
oracle. Anything with ``__array__`` or DLPack goes in. All functions raise `InputError`, naming the argument, for arrays
that are not 2-D, empty, not finite, of other shapes than their partners, or whose norms are out of range.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import TIE_SLACK, iterate_blocks, similarity_of_unit_rows, unit_rows
from ruler.core.checks import as_matrix, cached_rows_for, check_same_shape, measure_norms
from ruler.core.errors import InputError
from ruler.core.threads import run_in_threads
from ruler.core.types import FloatArray, RowsLike
from ruler.neighbors.search import search


def cosine_similarity(a: RowsLike, b: RowsLike) -> FloatArray:
    """How similar is row i of ``a`` to row i of ``b``? (n,) in [-1, 1].

    Eq. 1, computed as 1 - |a - b|^2 / 2 over rows of norm 1, so that identical rows give exactly 1 and a row's value
    does not depend on the rows beside it. An all-zero row has similarity 0 to everything.

    Example:
        >>> cosine_similarity([[1.0, 0.0], [3.0, 4.0]], [[2.0, 0.0], [4.0, -3.0]]).round(12).tolist()
        [1.0, 0.0]
    """
    return compare_rows(a, b, ("a", "b"))


def compare_rows(
    a: RowsLike, b: RowsLike, names: tuple[str, str], norms: tuple[FloatArray, FloatArray] | None = None
) -> FloatArray:
    """`cosine_similarity` whose errors name the caller's own arguments; ``norms`` of the rows, where they are known."""
    left, right = as_matrix(a, names[0]), as_matrix(b, names[1])
    check_same_shape(left.shape, right.shape, names)
    if norms is None:
        norms = measure_norms(left, names[0], is_whole=True), measure_norms(right, names[1], is_whole=True)
    left_norms, right_norms = norms
    similarity = np.empty(len(left))

    def compare(span: tuple[int, int]) -> None:
        rows = slice(*span)
        similarity[rows] = similarity_of_unit_rows(
            unit_rows(np.asarray(left[rows], dtype=np.float64), left_norms[rows]),
            unit_rows(np.asarray(right[rows], dtype=np.float64), right_norms[rows]),
        )

    run_in_threads(compare, iterate_blocks(len(left), cached_rows_for(left.shape[1])))
    return similarity


def oracle_similarity(unlearned_forget: RowsLike, oracle_forget: RowsLike) -> FloatArray:
    """How similar is each forget record in the unlearned model to itself in the oracle? (n,) in [-1, 1].

    Example:
        >>> oracle_similarity([[1.0, 0.0]], [[0.6, 0.8]]).round(12).tolist()
        [0.6]
    """
    return compare_rows(unlearned_forget, oracle_forget, ("unlearned_forget", "oracle_forget"))


def m1(unlearned_forget: RowsLike, oracle_forget: RowsLike) -> float:
    """On average, how close are the forget records to where the oracle places them? (M1, Eq. 2)

    M1 = mean over forget records of sim(unlearned, oracle), in [-1, 1]; 1 is the same place. It has no fixed null: see
    `m2`. Both arguments are (n, p), the same records in the same order.

    Example:
        >>> m1([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]])
        0.5
    """
    return float(oracle_similarity(unlearned_forget, oracle_forget).mean())


def calibration_gap(
    unlearned_forget: RowsLike, oracle_forget: RowsLike, unlearned_retain: RowsLike, oracle_retain: RowsLike
) -> FloatArray:
    """How much more similar to the oracle is each forget record than the median retain record? (n,) in [-2, 2].

    Example:
        >>> axes = np.eye(2)
        >>> calibration_gap(axes, axes[[0, 0]], axes, axes).tolist()
        [0.0, -1.0]
    """
    forget = oracle_similarity(unlearned_forget, oracle_forget)
    retain = compare_rows(unlearned_retain, oracle_retain, ("unlearned_retain", "oracle_retain"))
    return subtract_baseline(forget, retain)


def subtract_baseline(similarity: FloatArray, retain_similarity: FloatArray) -> FloatArray:
    """Gaps of M2 from similarities to the oracle: (n,) less the median over retain records.

    Example:
        >>> subtract_baseline(np.array([0.5, 1.0]), np.array([0.9, 1.0, 0.8])).round(3).tolist()
        [-0.4, 0.1]
    """
    gap: FloatArray = similarity - np.median(retain_similarity)
    return gap


def m2(
    unlearned_forget: RowsLike, oracle_forget: RowsLike, unlearned_retain: RowsLike, oracle_retain: RowsLike
) -> float:
    """On average, do forget records sit as close to the oracle as retain records do? (M2, Eq. 3)

    M2 = M1 - median over retain records of sim(unlearned, oracle), in [-2, 2]. The paper reads 0 as erased, negative as
    residual memorisation, positive as over-correction. A mean minus a median is not 0 for a skewed distribution even
    when unlearning was perfect, so the paper's null does not hold its error rate. Forget records are (n, p), retain
    records (m, p).

    Example:
        >>> axes = np.eye(2)
        >>> m2(axes, axes[[0, 0]], axes, axes)
        -0.5
    """
    return float(calibration_gap(unlearned_forget, oracle_forget, unlearned_retain, oracle_retain).mean())


def representation_shift(unlearned_forget: RowsLike, original_forget: RowsLike, oracle_forget: RowsLike) -> FloatArray:
    """How much closer to the oracle is each forget record after unlearning than before? (n,) in [-2, 2].

    Example:
        >>> x, y = [1.0, 0.0], [0.0, 1.0]
        >>> representation_shift([x, y], [y, y], [x, y]).tolist()
        [1.0, 0.0]
    """
    after = oracle_similarity(unlearned_forget, oracle_forget)
    before = compare_rows(original_forget, oracle_forget, ("original_forget", "oracle_forget"))
    return after - before


def m3(unlearned_forget: RowsLike, original_forget: RowsLike, oracle_forget: RowsLike) -> float:
    """On average, did unlearning move forget records towards the oracle? (M3, Eq. 4)

    M3 = mean over forget records of sim(unlearned, oracle) - sim(original, oracle), in [-2, 2]. Positive: closer, as
    intended; negative: further away; near 0: hardly moved. All arguments are (n, p), the same
    records in the same order.

    Example:
        >>> x, y = [1.0, 0.0], [0.0, 1.0]
        >>> m3([x, y], [y, y], [x, y])
        0.5
    """
    return float(representation_shift(unlearned_forget, original_forget, oracle_forget).mean())


def percentile_rank(forget: RowsLike, retain: RowsLike) -> FloatArray:
    """What share of retain records has a nearest retain record no closer than this forget record has? (n,) in [0, 1].

    s_f(x) = largest similarity of forget record x to a retain record (Eq. 5); s_r(x') = the same for retain record x',
    itself left out (Eq. 6); rank(x) = share of retain records with s_r <= s_f(x) (Eq. 7). Similarities closer than
    1e-12 count as equal. At least two retain records are needed, and all of them are used.

    Example:
        >>> retain = [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]
        >>> percentile_rank([[1.0, 0.0], [-1.0, 0.0]], retain).round(2).tolist()
        [1.0, 0.0]
    """
    shape = getattr(retain, "shape", None) or np.shape(cast(npt.ArrayLike, retain))
    if tuple(shape[:1]) == (1,):
        raise InputError("retain must have at least 2 rows to rank against; got 1. Give more retain records.")
    to_forget = search(forget, retain, names=("forget", "retain")).similarity[:, 0]
    to_retain = search(retain, retain, names=("retain", "retain"), exclude_self=True).similarity[:, 0]
    return rank_within(to_forget, to_retain)


def rank_within(values: FloatArray, reference: FloatArray) -> FloatArray:
    """Ranks of M4 from similarities: share of ``reference`` at most each value, ties within 1e-12 included (Eq. 7).

    Example:
        >>> rank_within(np.array([0.5, 2.0]), np.array([0.1, 0.5, 0.9, 1.0])).tolist()
        [0.5, 1.0]
    """
    return np.searchsorted(np.sort(reference), values + TIE_SLACK, side="right") / len(reference)


def m4(forget: RowsLike, retain: RowsLike) -> float:
    """On average, where do forget records rank among retain records by their nearest retain record? (M4, Eq. 5-7)

    A number in [0, 1] from (n, p) forget and (m, p) retain records of one model. The paper reads 0.5 as erased,
    above as residual memorisation, below as over-displacement. Its null does not hold in general: `<=` counts ties on
    one side, and all forget ranks share one gallery.

    Example:
        >>> m4([[1.0, 0.0]], [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        1.0
    """
    return float(percentile_rank(forget, retain).mean())


def all_metrics(
    unlearned_forget: RowsLike,
    unlearned_retain: RowsLike,
    oracle_forget: RowsLike,
    oracle_retain: RowsLike,
    original_forget: RowsLike | None = None,
) -> dict[str, float | None]:
    """What do M1, M2, M3 and M4 say about this unlearned model? ``m3`` is None without ``original_forget``.

    Forget records are (n, p), retain records (m, p), in the same order in every model.

    Example:
        >>> records = [[1.0, 0.0], [0.0, 1.0]]
        >>> all_metrics(records, records, records, records)
        {'m1': 1.0, 'm2': 0.0, 'm3': None, 'm4': 1.0}
    """
    return {
        "m1": m1(unlearned_forget, oracle_forget),
        "m2": m2(unlearned_forget, oracle_forget, unlearned_retain, oracle_retain),
        "m3": None if original_forget is None else m3(unlearned_forget, original_forget, oracle_forget),
        "m4": m4(unlearned_forget, unlearned_retain),
    }
