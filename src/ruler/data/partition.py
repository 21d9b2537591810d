"""Which records are to be forgotten: by row, by class, or by whole groups."""

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import IndexArray, Partition, as_names

Names = str | int | Collection[str] | Collection[int] | npt.NDArray[Any]
"""One class or group, or several."""


def partition_rows(n_rows: int, fraction: float, *, seed: int = 999, minimum: int = 10) -> Partition:
    """Which single records are forgotten, if a share of them is drawn at random?

    ``max(minimum, floor(fraction * n_rows))`` rows, drawn as in the paper's protocol.

    Args:
        n_rows: Number of training records.
        fraction: Share to forget, between 0 and 1.
        seed: Of the draw.
        minimum: Smallest forget set.

    Raises:
        InputError: A fraction out of range, or nothing left to retain.

    Example:
        >>> partition_rows(242, 0.05).forget.size
        12
    """
    _check_fraction(fraction)
    size = max(minimum, int(fraction * n_rows))
    if not 0 < size < n_rows:
        raise InputError(
            f"n_rows must leave something to forget and to retain; got {n_rows} rows, {size} of them to forget. "
            "Give more records or another fraction or minimum."
        )
    is_forget = np.zeros(n_rows, dtype=bool)
    is_forget[np.random.RandomState(seed).choice(n_rows, size, replace=False)] = True
    return _cut(is_forget)


def partition_classes(labels: npt.ArrayLike, classes: Names) -> Partition:
    """Which records are forgotten, if whole classes are?

    Args:
        labels: (n,) class of each training record.
        classes: One class, or several, to forget.

    Raises:
        InputError: A class without records, or nothing left to retain.

    Example:
        >>> partition_classes([0, 2, 1, 2], 2).forget.tolist()
        [1, 3]
    """
    return _cut_by_name(_as_names(labels, "labels"), classes, "classes")


def partition_groups(
    groups: npt.ArrayLike,
    forget: Names | None = None,
    *,
    fraction: float | None = None,
    seed: int = 999,
    choice: Literal["random", "most_frequent", "single", "pair"] = "random",
) -> Partition:
    """Which records are forgotten, if whole groups are: identities, patients, documents?

    A group is never cut: all of its records are forgotten, or none.

    Args:
        groups: (n,) group of each training record.
        forget: One group, or several, to forget; or None to draw them.
        fraction: Groups are added until they hold at least this share of the records; ``"single"`` takes one
            group and ``"pair"`` two, whatever they hold.
        seed: Of the draw; the order of the records does not matter.
        choice: ``"random"`` draws groups in random order; ``"most_frequent"`` takes the largest first, equal ones in
            sorted order, which draws nothing; ``"single"`` takes one group at random, ``"pair"`` two.

    Raises:
        InputError: Not exactly one of ``forget`` and ``fraction``; a group without records; records without a
            group; another choice; nothing left to retain.

    Example:
        >>> partition_groups(["ann", "bob", "ann", "cy"], "ann").forget.tolist()
        [0, 2]
        >>> partition_groups(["ann", "bob", "bob", "cy"], fraction=0.3, choice="most_frequent").forget.tolist()
        [1, 2]
    """
    names = _as_names(groups, "groups")
    if (forget is None) == (fraction is None):
        raise InputError(
            f"exactly one of forget and fraction must be given; got forget={forget!r} and fraction={fraction!r}."
        )
    if forget is not None:
        return _cut_by_name(names, forget, "groups")
    assert fraction is not None
    _check_fraction(fraction)
    distinct, codes, sizes = np.unique(names, return_inverse=True, return_counts=True)
    draw = np.random.RandomState(seed)
    if choice == "single":
        return _cut(codes == draw.randint(len(distinct)))
    if choice == "pair":
        return _cut(np.isin(codes, draw.permutation(len(distinct))[:2]))
    if choice not in ("random", "most_frequent"):
        raise InputError(f"choice must be one of random, most_frequent, single, pair; got {choice!r}.")
    order = draw.permutation(len(distinct)) if choice == "random" else np.argsort(-sizes, kind="stable")
    n_chosen = int(np.searchsorted(sizes[order].cumsum(), fraction * len(names))) + 1
    return _cut(np.isin(codes, order[:n_chosen]))


def _check_fraction(fraction: float) -> None:
    if not 0 < fraction < 1:
        raise InputError(f"fraction must be between 0 and 1; got {fraction}. For 5% give 0.05.")


def _as_names(values: npt.ArrayLike, what: str) -> npt.NDArray[Any]:
    names = np.asarray(values)
    if names.ndim != 1 or names.size == 0:
        raise InputError(f"{what} must be one name per record, shape (n,); got shape {names.shape}.")
    return as_names(names, what)


def _cut_by_name(names: npt.NDArray[Any], wanted: Names, what: str) -> Partition:
    chosen = np.atleast_1d(np.asarray(list(wanted) if isinstance(wanted, (set, frozenset)) else wanted))
    forget = np.unique(chosen.astype(str) if names.dtype.kind == "U" else chosen)  # as `_as_names` does with objects
    absent = forget[~np.isin(forget, names)]
    if forget.size == 0 or absent.size:
        raise InputError(
            f"{what} to forget must occur among the records; got "
            f"{', '.join(map(repr, absent.tolist())) or 'none at all'}. Known are, for example, "
            f"{', '.join(map(repr, np.unique(names)[:5].tolist()))}."
        )
    return _cut(np.isin(names, forget))


def _cut(is_forget: npt.NDArray[np.bool_]) -> Partition:
    rows: IndexArray = np.arange(len(is_forget), dtype=np.int64)
    if is_forget.all():
        raise InputError("something must be left to retain; got every record to forget. Forget fewer of them.")
    return Partition(forget=rows[is_forget], retain=rows[~is_forget])
