"""How far two means of five runs may lie apart by chance: the standard error of their difference."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ruler.paper.tables.numbers import identify

_N_RUNS = 5  # of every condition in the studies that are compared by standard errors, the paper's and ours
Record = Mapping[Any, Any]


def find_standard_errors(published: Iterable[Record], ours: Iterable[Record]) -> dict[tuple[Any, ...], float]:
    """Standard error of ours minus the paper's, for each published number whose spread we measured.

    Where the paper prints no standard deviation, ours stands for both, pooled over the conditions of the method and
    forget fraction in the same table and study: five runs alone say little about their own spread, and a metric of few
    forget records spreads more than one of many.

    Args:
        published: Published numbers.
        ours: Our numbers; the spread of ``m4_mean`` is ``m4_sd``, that of ``m4_lowest`` is ``m4_lowest_sd``.

    Returns:
        By identity of the published number.

    Example:
        >>> find_standard_errors([], [])
        {}
    """
    numbers, own = list(published), list(ours)
    theirs = {identify(record): float(record["paper"]) for record in numbers}
    spreads = {identify(record): float(record["value"]) for record in own if record["column"].endswith("_sd")}
    pooled = _pool(own)
    found = {}
    for number in numbers:
        spread = {**number, "column": _name_spread(number["column"])}
        if math.isnan(spreads.get(identify(spread), math.nan)):
            continue
        common = pooled[_gather_by(spread)]
        pair = (theirs[identify(spread)], spreads[identify(spread)]) if identify(spread) in theirs else (common, common)
        found[identify(number)] = math.sqrt(sum(sd**2 for sd in pair) / _N_RUNS)
    return found


def _name_spread(column: str) -> str:
    return f"{column.removesuffix('_mean')}_sd"


def _gather_by(record: Record) -> tuple[Any, ...]:
    values = (record[key] for key in ("table", "column", "study", "method", "forget_fraction"))
    return tuple(None if value != value else value for value in values)  # NaN would equal no other NaN


def _pool(records: Iterable[Record]) -> dict[tuple[Any, ...], float]:
    groups: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if record["column"].endswith("_sd") and not math.isnan(record["value"]):
            groups.setdefault(_gather_by(record), []).append(record["value"])
    return {key: math.sqrt(sum(sd**2 for sd in group) / len(group)) for key, group in groups.items()}
