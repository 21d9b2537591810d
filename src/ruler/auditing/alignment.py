"""Models that do not share their axes: an orthogonal map fitted on retain records, judged on others."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import svd

from ruler.auditing.findings import Pairing
from ruler.auditing.settings import Alignment
from ruler.core.arithmetic import iterate_blocks, norm_rows, similarity_of_unit_rows, unit_rows
from ruler.core.checks import block_rows_for
from ruler.core.errors import InputError
from ruler.core.types import FloatArray, IndexArray
from ruler.metrics.paper import compare_rows

if TYPE_CHECKING:
    from ruler.auditing.evidence import LayerRows, Side

SURELY_PAIRED = 0.9
"""Seed-paired models measured 0.95 to 1.00 on four datasets and five unlearning methods, unpaired ones 0.39 to 0.54."""

WORTH_ALIGNING = 0.1
"""A map that raises the similarity by less shows models that differ, not axes that do."""

_RESOLUTION = float(np.finfo(np.float32).eps)
"""Least strength of a known direction, next to the strongest; a similarity in float32 would not show a weaker one."""


def halve(keys: npt.NDArray[np.uint64]) -> tuple[IndexArray, IndexArray]:
    """Rows to fit the map on and rows to judge it on, each sorted: which is which follows from the rows' content.

    Example:
        >>> [rows.tolist() for rows in halve(np.array([7, 3, 9, 1], dtype=np.uint64))]
        [[1, 3], [0, 2]]
    """
    order = np.argsort(keys, kind="stable")
    return np.sort(order[: len(keys) // 2]), np.sort(order[len(keys) // 2 :])


def fit_map(source: npt.NDArray[Any], target: npt.NDArray[Any], rows: IndexArray | None = None) -> FloatArray:
    """The orthogonal map that brings the directions of ``source`` rows nearest to those of ``target`` (Procrustes).

    Args:
        source: (n, p) rows of one model, read in blocks.
        target: (n, q) the same records in another; the narrower is filled up with zero columns.
        rows: Which rows to fit on; None for all.

    Returns:
        (max(p, q), max(p, q)) matrix, to be multiplied from the right: orthogonal but for directions that the rows do
        not hold in both models, such as units that never fire. These go to zero, as rounding alone would turn them.

    Example:
        >>> turned = np.array([[0.0, 1.0], [-1.0, 0.0]])
        >>> fit_map(np.eye(2), turned).round(12).tolist()
        [[0.0, 1.0], [-1.0, 0.0]]
        >>> fit_map(np.eye(2)[:1], turned[:1]).round(12).tolist()
        [[0.0, 1.0], [0.0, 0.0]]
    """
    width = max(source.shape[1], target.shape[1])
    product = np.zeros((width, width))
    for block in _cut_rows(len(source), rows, width):
        product += _unit(source[block], width).T @ _unit(target[block], width)
    left, strengths, right = svd(product)
    is_known = strengths > _RESOLUTION * strengths[0]
    turn: FloatArray = left[:, is_known] @ right[is_known]
    return turn


def compare_through(
    source: npt.NDArray[Any], target: npt.NDArray[Any], turn: FloatArray, rows: IndexArray | None = None
) -> FloatArray:
    """Cosine similarity of each source row, mapped, to the same row of ``target``: (n,) in [-1, 1].

    What the map sends to zero is similar to nothing. With ``rows``, of these alone. Rows are read in blocks.

    Example:
        >>> compare_through(np.eye(2), np.eye(2)[::-1], np.eye(2)[::-1]).tolist()
        [1.0, 1.0]
        >>> compare_through(np.array([[3.0, 4.0]]), np.array([[3.0, 4.0]]), np.diag([1.0, 0.0])).round(12).tolist()
        [0.36]
    """
    width = len(turn)
    loses_nothing = np.allclose(turn @ turn.T, np.eye(width))
    parts = []
    for block in _cut_rows(len(source), rows, width):
        unit, other = _unit(source[block], width), _unit(target[block], width)
        mapped = unit @ turn
        if not loses_nothing:  # what a row lost goes to columns of its own, so that its norm is 1 again
            lost = unit - mapped @ turn.T
            mapped, other = np.hstack([mapped, lost]), np.hstack([other, np.zeros_like(other)])
        parts.append(similarity_of_unit_rows(mapped, other))
    return np.concatenate(parts)


def map_rows(model: "LayerRows", at: "LayerRows", side: "Side", span: slice) -> FloatArray:
    """Unit rows of a model, turned to the axes of another where the two do not share theirs; zero columns fill up."""
    width = max(model.rows["retain"].shape[1], at.rows["retain"].shape[1])
    unit = _unit(model.rows[side][span], width)
    if model is not at and model.pair_with(at).is_aligned:
        unit = unit @ model.map_to(at)
    return unit


def judge_pairing(
    rows: npt.NDArray[Any],
    others: npt.NDArray[Any],
    align: Alignment,
    halves: tuple[IndexArray, IndexArray],
    compare: Callable[[], FloatArray] | None = None,
    known: FloatArray | None = None,
) -> Pairing:
    """How similar are retain records in two models, as they are and after the best rotation, and which is to be used?

    Two models from one initialisation agree as they are; two from different ones agree only after it.

    Args:
        rows: (n, p) retain records in one model.
        others: (n, q) the same in the other.
        align: Whether to rotate: where models are not seed-paired ("auto"), never or always.
        halves: Rows to fit a map on, and rows to judge it on.
        compare: Gives the similarities through that map where a caller keeps them; None fits it here.
        known: (n,) similarity of each record to itself as the models are, where a caller has it.

    Raises:
        InputError: Fewer than four rows where a map is to be fitted.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(40, 3))
        >>> found = judge_pairing(rows, rows[:, [1, 2, 0]], "auto", (np.arange(20), np.arange(20, 40)))
        >>> found.plain_similarity < 0.5, round(found.aligned_similarity, 6), found.is_aligned
        (True, 1.0, True)
    """
    is_comparable = rows.shape == others.shape
    if is_comparable and known is None:
        known = compare_rows(rows, others, ("rows", "others"))
    plain = np.nan if known is None else float(np.median(known))
    is_surely_paired = plain >= SURELY_PAIRED
    if align == "never" or (align == "auto" and is_surely_paired):
        return Pairing(plain, np.nan, is_surely_paired, False, 0)
    if len(rows) < 4:
        raise InputError(
            f"retain must have at least 4 rows to be aligned; got {len(rows)}. Give more, or align='never'."
        )
    fitted, judged = halves
    through = compare() if compare else compare_through(rows, others, fit_map(rows, others, fitted), judged)
    aligned = float(np.median(through))
    if known is not None:
        plain = float(np.median(known[judged]))
    is_paired = bool(plain >= SURELY_PAIRED or aligned - plain < WORTH_ALIGNING)
    return Pairing(plain, aligned, is_paired, align == "always" or not is_paired, len(fitted))


def _cut_rows(n_rows: int, rows: IndexArray | None, width: int) -> list[slice] | list[IndexArray]:
    blocks = iterate_blocks(n_rows if rows is None else len(rows), block_rows_for(width))
    return [slice(*ends) for ends in blocks] if rows is None else [rows[start:stop] for start, stop in blocks]


def _unit(rows: npt.NDArray[Any], width: int) -> FloatArray:
    block = np.zeros((len(rows), width))
    block[:, : rows.shape[1]] = rows
    unit: FloatArray = unit_rows(block, norm_rows(block))
    return unit
