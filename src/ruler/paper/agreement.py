"""Our numbers beside the published ones, and how close counts as agreement."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

from ruler.paper.published import load_table, published_numbers, read_rows
from ruler.paper.results import N_SEEDS
from ruler.paper.tables.numbers import KEYS, identify

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("table", "row", "column", "paper", "ours", "difference", "tolerance", "agrees", "n", "n_paper", "note")
_ENOUGH = 0.95  # of the paper's runs: a few runs without the metric still give the same quantity
_DECIMALS, _ROUNDING = 9, 1e-9  # what is left of a difference beyond these is rounding of the subtraction
_SETTINGS_TABLE = "2"
Record = Mapping[Any, Any]
_SIGNIFICANCE = 0.05
_STANDARD_ERRORS = 2.31  # 97.5% of Student's t with 8 degrees of freedom: two means of five
FACTOR = 3.1  # root of 97.5% of F with 4 and 4 degrees of freedom: two standard deviations of five


@dataclass(frozen=True)
class Tolerance:
    """When a number of ours agrees with a published one."""

    columns: str  # pattern of the columns it holds for
    reason: str  # why this and not less or more
    absolute: float = 0.0  # largest difference
    relative: float = 0.0  # largest difference as a part of the published number; the larger of the two counts
    # Within those limits; on the same side of the significance level 0.05; within so many standard errors of the
    # difference of two means of five runs; within a factor of the published one.
    rule: Literal["within", "significance", "standard_errors", "factor"] = "within"
    tables: tuple[str, ...] = ()  # where it holds; everywhere when empty
    studies: tuple[str, ...] = ()
    max_forget: float = math.inf  # only for forget sets of up to this many records

    def limit(self, paper: float, standard_error: float = math.nan) -> float:
        """Largest difference from this published number; NaN where it needs a standard error and there is none."""
        if self.rule == "standard_errors":
            return _STANDARD_ERRORS * standard_error
        return max(self.absolute, self.relative * abs(paper))

    def holds_for(self, number: Mapping[str, Any]) -> bool:
        """Whether it is for this published number, given by its table, column and keys."""
        return (
            (not self.tables or number["table"] in self.tables)
            and (not self.studies or number.get("study") in self.studies)
            and fnmatchcase(number["column"], self.columns)
            and (
                math.isinf(self.max_forget)
                or _forget_set_sizes().get((number["dataset"], number["forget_fraction"]), math.inf) <= self.max_forget
            )
        )

    def __str__(self) -> str:
        if self.rule != "within":
            return {
                "significance": f"same side of {_SIGNIFICANCE}",
                "standard_errors": f"{_STANDARD_ERRORS:g} standard errors",
                "factor": f"factor {FACTOR:g}",
            }[self.rule]
        if self.relative:
            return f"{self.absolute:g} or {self.relative:.0%}"
        return f"{self.absolute:g}" if self.absolute else "exact"


def compare_numbers(numbers: "Mapping[str, pd.DataFrame]") -> "pd.DataFrame":
    """Do our numbers agree with the paper's?

    Args:
        numbers: Tidy numbers by table, from ``compute_numbers``.

    Returns:
        One row per published number: ``table``, ``row``, ``column``, ``paper``, ``ours``, ``difference`` (for a
        bound: by how much it is missed), ``tolerance``, ``agrees`` (True, False, or None where nothing can be
        said), ``n`` and ``n_paper`` runs behind the two, ``note``, and the keys.
    """
    import pandas as pd

    published = published_numbers().to_dict("records")
    ours = {identify(record): record for table in numbers.values() for record in table.to_dict("records")}
    errors = find_standard_errors(published, ours.values())
    places = map(identify, published)
    records = [
        _compare(number, ours.get(place), errors.get(place, math.nan))
        for number, place in zip(published, places, strict=True)
    ]
    frame = pd.DataFrame.from_records(records, columns=[*COLUMNS, "relation", *KEYS])
    return frame.astype({"agrees": "boolean"})


def find_standard_errors(published: Sequence[Record], ours: Iterable[Record]) -> dict[tuple[Any, ...], float]:
    """Standard error of ours minus the paper's mean of five runs, for each published number whose spread we measured.

    Where the paper prints no standard deviation, ours stands for both, pooled over the conditions of the method and
    forget fraction in the same table and study: five runs alone say little about their own spread, and a metric of few
    forget records spreads more than one of many. The spread of ``m4_mean`` is ``m4_sd``, that of ``m4_lowest`` is
    ``m4_lowest_sd``.
    """
    theirs = {identify(number): float(number["paper"]) for number in published}
    spreads: dict[tuple[Any, ...], float] = {}
    groups: dict[tuple[Any, ...], list[float]] = {}
    shared = ("table", "column", "study", "method", "forget_fraction")
    for record in ours:
        if record["column"].endswith("_sd") and not math.isnan(record["value"]):
            spreads[identify(record)] = float(record["value"])
            groups.setdefault(identify(record, shared), []).append(record["value"])
    found = {}
    for number in published:
        spread = {**number, "column": f"{number['column'].removesuffix('_mean')}_sd"}
        if (place := identify(spread)) in spreads:
            group = groups[identify(spread, shared)]
            common = math.sqrt(sum(sd**2 for sd in group) / len(group))
            pair = (theirs[place], spreads[place]) if place in theirs else (common, common)
            found[identify(number)] = math.sqrt(sum(sd**2 for sd in pair) / N_SEEDS)
    return found


def _compare(published: Record, ours: Record | None, standard_error: float) -> dict[str, Any]:
    found = {name: published[name] for name in ("table", "row", "column", "paper", "relation", *KEYS)}
    is_setting = published["table"] == _SETTINGS_TABLE
    tolerance = find_tolerance(published)
    found |= {"tolerance": "" if tolerance is None or is_setting else str(tolerance), "agrees": None}
    if ours is None:
        return found | {"note": "a setting, not a measurement" if is_setting else "not measured"}
    difference = float(ours["value"] - published["paper"])
    if published["relation"] in ("<", "<="):
        difference = max(difference, 0.0)
    elif published["relation"] in (">", ">="):
        difference = min(difference, 0.0)
    found |= {"ours": ours["value"], "n": ours["n"], "n_paper": ours["n_paper"], "note": ours["note"]}
    found["difference"] = round(difference, _DECIMALS)
    return found | _judge(found, published, ours, tolerance, standard_error)


def _judge(
    found: Record, published: Record, ours: Record, tolerance: Tolerance | None, standard_error: float
) -> dict[str, Any]:
    """Whether a number of ours agrees, where that can be said, and what is to be noted or widens the tolerance."""
    paper, value, n, n_paper = published["paper"], ours["value"], ours["n"], ours["n_paper"]
    tail = f"; {ours['note']}" if ours["note"] else ""
    if n < _ENOUGH * n_paper or n > n_paper:
        return {"note": f"{n} runs where the paper has {n_paper}: not judged{tail}"}
    if not ours["is_comparable"]:
        return {"note": f"a smoke run: not judged{tail}"}
    if math.isnan(paper) and math.isnan(value):
        return {"agrees": True, "note": f"the paper prints n/a too{tail}"}
    if math.isnan(paper):
        return {"agrees": False, "note": "the paper prints n/a, ours could be computed"}
    if math.isnan(value):
        return {"agrees": False}
    if tolerance is None:
        return {"note": "no tolerance is set for this number"}
    if tolerance.rule == "significance":
        return {"agrees": is_significant(value) == is_significant(paper, published["relation"])}
    limit = tolerance.limit(paper, standard_error)
    unseen = 0.5 * 10.0 ** -published["decimals"]  # what the paper's rounding may hide
    if tolerance.rule == "factor":
        return {"agrees": max(paper, value) <= FACTOR * (min(paper, value) + limit + unseen)}
    if tolerance.rule == "within":
        return {"agrees": abs(found["difference"]) <= limit + _ROUNDING}
    limit += unseen
    return {"agrees": abs(found["difference"]) <= limit + _ROUNDING, "tolerance": f"{limit:.3g}: {tolerance}"}


def find_tolerance(number: Mapping[str, Any]) -> Tolerance | None:
    """The first tolerance that is for a published number; None if none is."""
    return next((entry for entry in list_tolerances() if entry.holds_for(number)), None)


@lru_cache(maxsize=1)
def list_tolerances() -> tuple[Tolerance, ...]:
    """All tolerances of ``published_tables/tolerances.csv``, in the order in which they are tried."""
    return tuple(
        Tolerance(
            row["columns"],
            row["reason"],
            absolute=float(row["absolute"] or 0),
            relative=float(row["relative"] or 0),
            rule=cast(Any, row["rule"]),
            tables=tuple(row["tables"].split()),
            studies=tuple(row["studies"].split()),
            max_forget=float(row["max_forget"] or math.inf),
        )
        for row in read_rows("tolerances.csv")
    )


def is_significant(p_value: float, relation: str = "=") -> bool:
    """Whether a p-value, or a printed bound of one, lies under 0.05."""
    return p_value < _SIGNIFICANCE or (p_value == _SIGNIFICANCE and relation == "<")


@lru_cache(maxsize=1)
def _forget_set_sizes() -> dict[tuple[str, float], float]:
    """By dataset and forget fraction, from the paper's Table 9."""
    sizes = load_table(9).query("column == 'n_forget'")
    return dict(zip(zip(sizes["dataset"], sizes["forget_fraction"], strict=True), sizes["paper"], strict=True))
