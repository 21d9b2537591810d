"""What every engine of neighbour search must do, ours and yours: the same answer, to the bit.

Write in your own tests::

    from ruler.testing.engines import check_engine

    def test_contract():
        check_engine(MyEngine())
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import norm_rows, similarity_of_unit_rows, unit_rows
from ruler.core.types import FloatArray, Neighbors
from ruler.neighbors import Searcher
from ruler.neighbors.engines import Engine, Request
from ruler.testing import check_refused

Rows = npt.NDArray[Any]


def _clustered(rng: np.random.Generator, n: int, p: int) -> FloatArray:
    spread = 10.0 ** rng.integers(-9, 0)
    return rng.normal(size=(5, p))[rng.integers(0, 5, n)] + spread * rng.normal(size=(n, p))


def _round_to_bfloat16(rows: FloatArray) -> FloatArray:
    bits = rows.astype(np.float32).view(np.uint32) + np.uint32(1 << 15)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


KINDS: dict[str, Callable[[np.random.Generator, int, int], FloatArray]] = {
    "random": lambda rng, n, p: rng.normal(size=(n, p)),
    "clustered": _clustered,
    "duplicated": lambda rng, n, p: np.repeat(rng.normal(size=(n, p)), rng.integers(1, 21, n), axis=0)[:n],
    "zero_rows": lambda rng, n, p: rng.normal(size=(n, p)) * (rng.random((n, 1)) > 0.4),
    "discrete": lambda rng, n, p: rng.integers(-1, 2, size=(n, p)).astype(np.float64),
    "collapsed": lambda rng, n, p: np.ones((n, 1)) * rng.normal(size=p),
    "scaled_copies": lambda rng, n, p: rng.random((n, 1)) * rng.normal(size=p),
    "heavy_tailed": lambda rng, n, p: rng.standard_t(1.0, size=(n, p)),
    "low_rank": lambda rng, n, p: rng.normal(size=(n, 2)) @ rng.normal(size=(2, p)),
    "quantised": lambda rng, n, p: np.round(8 * _clustered(rng, n, p)).clip(-127, 127),
    "rounded": lambda rng, n, p: _round_to_bfloat16(_clustered(rng, n, p)),
    "rectified": lambda rng, n, p: np.maximum(rng.normal(size=(n, 3)) @ rng.normal(size=(3, p)), 0.0),
}
"""(generator, rows, columns) -> rows of a kind that has broken searches before."""


def search_by_definition(queries: Rows, base: Rows, *, k: int = 1, exclude_self: bool = False) -> Neighbors:
    """The answer by its definition: 1 - |a - b|^2 / 2 of all pairs of unit rows in float64, ties by smallest index.

    Example:
        >>> search_by_definition(np.eye(2), np.array([[1.0, 0.0], [0.0, 3.0]])).index.tolist()
        [[0], [1]]
    """
    a, b = (np.asarray(rows, dtype=np.float64) for rows in (queries, base))
    a, b = unit_rows(a, norm_rows(a)), unit_rows(b, norm_rows(b))
    i, j = (part.ravel() for part in np.indices((len(a), len(b))))
    values = similarity_of_unit_rows(a[i], b[j]).reshape(len(a), len(b))
    if exclude_self:
        np.fill_diagonal(values, -np.inf)
    index = np.lexsort((np.broadcast_to(np.arange(len(b)), values.shape), -values), axis=-1)[:, :k]
    return Neighbors(np.take_along_axis(values, index, axis=1), index)


def check_engine(engine: Engine, *, device: str | None = None) -> None:
    """Run every check on an engine; takes a second or two.

    Args:
        engine: As it would stand in ``ruler.neighbors.search.ENGINES``.
        device: Named in every request; None names none.

    Raises:
        AssertionError: A rule is broken; the message says which.

    Example:
        >>> from ruler.neighbors.cpu import CpuEngine
        >>> check_engine(CpuEngine())
    """
    rows = np.eye(3)
    assert engine.is_usable_for(Request(rows, rows, device=device)) in (True, False), "is_usable_for must say yes or no"

    def search(queries: Any, base: Any, *, k: int = 1, exclude_self: bool = False) -> Neighbors:
        return engine.search(Request(queries, base, k, exclude_self, device))

    check_searcher(search)
    flat = Request(np.ones(3), np.ones((3, 2)), device=device, names=("forget", "retain"))
    check_refused(lambda: engine.search(flat), "forget must be 2-D")


def check_searcher(search: Searcher) -> None:
    """Run every check on something that searches as `find_neighbors` does.

    Raises:
        AssertionError: A rule is broken; the message says which.

    Example:
        >>> from ruler import find_neighbors
        >>> check_searcher(find_neighbors)
    """
    for number, kind in enumerate(KINDS):
        check_answers(search, KINDS[kind](np.random.default_rng(number), 150, 7), kind)
    check_inputs(search)
    check_refusals(search)


def check_answers(search: Searcher, rows: Rows, kind: str = "rows") -> None:
    """Answers are those of the definition to the bit: in itself, in a copy of itself, and in another set."""
    own, other = _define_answers(rows.tobytes(), rows.dtype.str, rows.shape)
    for (k, exclude_self), expected in own.items():
        for base in (rows, rows.copy()):
            _check_same(search(rows, base, k=k, exclude_self=exclude_self), expected, f"{kind}, k={k}")
    half = len(rows) // 2
    _check_same(search(rows[:half], rows[half:], k=2), other, kind)
    order = np.random.default_rng(0).permutation(len(rows))
    found, shuffled = search(rows, rows, exclude_self=True), search(rows[order], rows[order].copy(), exclude_self=True)
    assert np.array_equal(shuffled.similarity, found.similarity[order]), f"row order must not change {kind}"


@lru_cache(maxsize=32)  # every engine is asked about the same rows
def _define_answers(
    content: bytes, dtype: str, shape: tuple[int, ...]
) -> tuple[dict[tuple[int, bool], Neighbors], Neighbors]:
    """By (k, exclude_self) those of rows in themselves, and those of the first half in the second."""
    rows = np.frombuffer(content, dtype).reshape(shape)
    options = ((1, True), (1, False), (4, True), (3, False))
    own = {(k, is_out): search_by_definition(rows, rows, k=k, exclude_self=is_out) for k, is_out in options}
    half = len(rows) // 2
    return own, search_by_definition(rows[:half], rows[half:], k=2)


def check_inputs(search: Searcher) -> None:
    """Arrays of any number type are read as they are, and never written to; all base rows may be asked for."""
    rows = np.random.default_rng(0).integers(-8, 9, size=(20, 6)) + 0.5
    expected = search_by_definition(rows, rows, k=20)
    for given in (rows.astype(np.float16), rows.astype(np.float32), np.asfortranarray(rows), rows.tolist()):
        before = np.array(given)
        _check_same(search(given, given, k=20), expected, "the type of the array")
        assert np.array_equal(np.asarray(given), before), "a search must not change what it is given"


def check_refusals(search: Searcher) -> None:
    """What cannot be searched is refused with a `ValueError` that names the argument."""
    rows = np.random.default_rng(0).normal(size=(4, 2))
    broken = np.where(np.arange(4)[:, None] == 2, np.nan, rows)
    check_refused(lambda: search(broken, rows), "queries must be finite")
    check_refused(lambda: search(rows, broken), "base must be finite")
    check_refused(lambda: search(rows[0], rows), "queries must be 2-D")
    check_refused(lambda: search(rows[:, :1], rows), "queries and base must have the same number of columns")
    check_refused(lambda: search(rows, rows, k=0), "k must be from 1")
    check_refused(lambda: search(rows, rows, k=4, exclude_self=True), "k must be from 1 to the 3 rows of base")
    check_refused(lambda: search(rows[:2], rows, exclude_self=True), "queries must be the rows of base")


def _check_same(found: Neighbors, expected: Neighbors, what: str) -> None:
    for name in ("similarity", "index"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert ours.dtype == theirs.dtype, f"{name} must be {theirs.dtype}; got {ours.dtype}"
        assert np.array_equal(ours, theirs), f"{name} must be that of the definition, to the bit ({what})"
