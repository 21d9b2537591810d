"""Which rows an audit takes, and in what order: by their content alone, so that no order given can change an answer."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import N_MEMBERS, Side
from ruler.auditing.settings import AuditSettings
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import cached_rows_for
from ruler.core.errors import InputError
from ruler.core.threads import run_in_threads
from ruler.core.types import IndexArray

Keys = npt.NDArray[np.uint64]
"""A number per row that follows from its content."""


def hash_content(rows: npt.NDArray[Any], salt: int = 0) -> Keys:
    """A number per row that follows from its values alone, whatever its dtype, layout or place: (n,).

    Example:
        >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
        >>> bool((hash_content(rows)[::-1] == hash_content(rows[::-1].astype(np.float32))).all())
        True
    """
    odd = np.random.default_rng(salt).integers(1, 1 << 63, rows.shape[1], dtype=np.uint64)
    factors = odd * np.uint64(2) + np.uint64(1)
    keys = np.empty(len(rows), dtype=np.uint64)

    def mix(span: tuple[int, int]) -> None:
        own = slice(*span)
        bits = (np.asarray(rows[own], dtype=np.float64) + 0.0).view(np.uint64)  # -0 becomes 0
        mixed = ((bits ^ (bits >> np.uint64(29))) * factors).sum(axis=1, dtype=np.uint64)
        keys[own] = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)

    run_in_threads(mix, iterate_blocks(len(rows), cached_rows_for(rows.shape[1])))
    return keys


def order_rows(keys: Keys, ids: npt.NDArray[Any], groups: npt.NDArray[Any] | None) -> IndexArray:
    """Rows by content; those with the same content by group and id.

    Example:
        >>> order_rows(np.array([7, 3, 3], dtype=np.uint64), np.array(["a", "c", "b"]), None).tolist()
        [2, 1, 0]
    """
    by_content: IndexArray = np.argsort(keys)
    if (np.diff(keys[by_content]) > 0).all():
        return by_content
    names = np.unique(ids.astype(str), return_inverse=True)[1]
    owners = names if groups is None else np.unique(groups.astype(str), return_inverse=True)[1]
    order: IndexArray = np.lexsort((names, owners, keys))
    return order


def level_groups(groups: Mapping[Side, Any], order: IndexArray) -> IndexArray:
    """Held-out rows, in their order, at most as many of each group as a forget group has (by the harmonic mean).

    Means of large groups scatter less than those of small ones, so that small forget groups would stand out.

    Example:
        >>> groups = {"forget": np.array(["a", "b"]), "held_out": np.array(["c", "c", "d"])}
        >>> level_groups(groups, np.arange(3)).tolist()
        [0, 2]
    """
    sizes = np.unique(groups["forget"], return_counts=True)[1]
    most = max(1, int(len(sizes) / np.sum(1.0 / sizes) + 1e-9))
    owners = groups["held_out"][order]
    seen: dict[Any, int] = {}
    kept = np.empty(len(order), dtype=bool)
    for row, owner in enumerate(owners.tolist()):
        seen[owner] = seen.get(owner, 0) + 1
        kept[row] = seen[owner] <= most
    return order[kept]


def match_strata(strata: Mapping[Side, Any], groups: Mapping[Side, Any], order: IndexArray) -> IndexArray:
    """Held-out rows, in their order, such that strata stand in the forget set's proportions; whole groups at a time.

    Raises:
        InputError: A stratum of the forget set without held-out records, or a group in several strata.
    """
    units: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}
    sides: tuple[Side, Side] = ("forget", "held_out")
    for side in sides:
        labels = strata[side]
        own = groups.get(side, np.arange(len(labels)))
        _, first, codes = np.unique(own, return_index=True, return_inverse=True)
        if (labels[first][codes] != labels).any():
            bad = own[np.flatnonzero(labels[first][codes] != labels)[0]]
            raise InputError(
                f"strata must be one per group; got several in {side} group {bad!r}. Match on something else."
            )
        units[side] = labels[first], codes
    wanted, available = (
        dict(zip(*(part.tolist() for part in np.unique(units[side][0], return_counts=True)), strict=True))
        for side in sides
    )
    missing = [name for name in wanted if name not in available]
    if missing:
        raise InputError(
            f"held_out must hold records of every stratum of the forget set; got none of {missing[0]!r}. "
            "Give such records, or match on something coarser."
        )
    ratio = min(available[name] / n for name, n in wanted.items())
    left = {name: max(1, int(ratio * n)) for name, n in wanted.items()}
    labels, codes = units["held_out"]
    chosen = np.zeros(len(labels), dtype=bool)
    for unit in dict.fromkeys(codes[order].tolist()):
        if left.get(labels[unit], 0) > 0:
            left[labels[unit]] -= 1
            chosen[unit] = True
    return order[chosen[codes[order]]]


def choose_members(keys: Keys, groups: npt.NDArray[Any] | None) -> IndexArray:
    """Retain rows that stand for known members: the first by content, whole groups at a time."""
    order = np.argsort(keys, kind="stable")
    if groups is None or len(keys) <= N_MEMBERS:
        return np.sort(order[:N_MEMBERS])
    sizes = np.bincount(groups)
    seen = np.array(list(dict.fromkeys(groups[order].tolist())))
    kept = seen[np.cumsum(sizes[seen]) <= max(N_MEMBERS, sizes[seen[0]])]
    return np.flatnonzero(np.isin(groups, kept))


def draw_reference(keys: Keys, settings: AuditSettings) -> IndexArray | None:
    """Retain rows to rank against, with replacement so that the bound on M4 holds as stated; None for all rows.

    Args:
        keys: (n,) of the retain rows, of `hash_content`.
        settings: Of the audit.

    Example:
        >>> draw_reference(np.arange(900, dtype=np.uint64), AuditSettings(n_reference=100)).shape
        (100,)
    """
    n, n_retain = settings.n_reference, len(keys)
    if n is None or n >= n_retain:
        return None
    drawn = np.random.default_rng(settings.seed).integers(0, n_retain, n)
    return np.sort(np.argsort(keys, kind="stable")[drawn])
