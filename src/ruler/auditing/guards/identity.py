"""Ids: the same records in the same order in every model, each on one side, each once."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import SIDES, Evidence
from ruler.auditing.findings import GuardFinding

_LONGEST_SHOWN = 40
_MOST_NAMED = 3


def check_order(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that came with one model and differ, row by row, from those of another."""
    for side in SIDES:
        claimed = {model: ids[side] for model, ids in evidence.claimed_ids.items() if side in ids}
        for first, second in combinations(claimed, 2):
            differing = _differing_rows(claimed[first], claimed[second])
            if len(differing):
                row = differing[0]
                yield GuardFinding(
                    "ids_differ",
                    "fail",
                    f"{first} and {second} hold different {say_side(side)} records: {len(differing)} of "
                    f"{len(claimed[first])} ids differ, the first in row {row}: {say(claimed[first][row])} and "
                    f"{say(claimed[second][row])}.",
                    "Sort both by id, or embed both models from the same data.",
                )
                break  # the other pairs would repeat it


def check_sharing(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that stand on two sides, although a record is forgotten, retained or held out."""
    for first, second in combinations([side for side in SIDES if side in evidence.ids], 2):
        if not {first, second} <= evidence.named:
            continue
        shared = _intersect(evidence.ids[first], evidence.ids[second])
        if shared:
            yield GuardFinding(
                "shared_ids",
                "fail",
                f"{len(shared)} ids are both {say_side(first)} and {say_side(second)} records: {say_some(shared)}.",
                "Put each record on one side; give records of different sources different names.",
            )


def _intersect(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> list[Any]:
    """Names on both sides, in the order of their text; numbers are equal whatever their type, but never to text."""
    if first.dtype == second.dtype or first.dtype.kind == second.dtype.kind == "U":
        return sorted(np.intersect1d(first, second).tolist(), key=str)
    return sorted(set(first.tolist()) & set(second.tolist()), key=str)  # slower; NumPy would round large numbers first


def check_repeats(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that stand twice on one side, so that one record counts as several."""
    for side, ids in evidence.ids.items():
        names, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            most = counts.argmax()
            yield GuardFinding(
                "repeated_ids",
                "warn",
                f"{int((counts > 1).sum())} ids name several {say_side(side)} records; {say(names[most])} names "
                f"{counts[most]}. Repeated records make the tests too sure.",
                "Give each record once, with a name of its own; say what belongs together by groups.",
            )


def are_row_numbers(ids: npt.NDArray[Any]) -> bool:
    """Whether ids are 0..n-1, as where nobody named the records: equal numbers on two sides then mean nothing.

    Example:
        >>> are_row_numbers(np.array([0, 1, 2])), are_row_numbers(np.array([2, 1, 0]))
        (True, False)
    """
    return ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids)))


def say_side(side: str) -> str:
    """A side in prose."""
    return side.replace("_", "-")


def say(name: Any) -> str:
    """An id in a message, cut to a bearable length.

    Example:
        >>> say("ann"), len(say("x" * 10_000))
        ("'ann'", 43)
    """
    text = repr(name.item() if isinstance(name, np.generic) else name)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def say_some(names: Sequence[Any]) -> str:
    """The first three of many names.

    Example:
        >>> say_some(["ann", "bob"]), say_some([1, 2, 3, 4, 5])
        ("'ann', 'bob'", '1, 2, 3 and 2 more')
    """
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(say, names[:_MOST_NAMED])) + rest


def _differing_rows(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if are_row_numbers(first) != are_row_numbers(second):
        named = second if are_row_numbers(first) else first
        # Row numbers claim nothing about names, but the same numbers in another order are other rows.
        if named.dtype.kind not in "iu" or set(named.tolist()) != set(range(len(named))):
            return np.empty(0, dtype=np.int64)
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.array([row for row, (a, b) in enumerate(pairs) if a != b], dtype=np.int64)
