"""Our numbers beside the published ones."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ruler.core.optional import load_optional
from ruler.paper.published import published_numbers
from ruler.paper.spreads import find_standard_errors
from ruler.paper.tables.numbers import KEYS, identify
from ruler.paper.tolerances import FACTOR, Tolerance, find_tolerance, is_significant

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("table", "row", "column", "paper", "ours", "difference", "tolerance", "agrees", "n", "n_paper", "note")
_ENOUGH = 0.95  # of the paper's runs: a few runs without the metric still give the same quantity
_DECIMALS, _ROUNDING = 9, 1e-9  # what is left of a difference beyond these is rounding of the subtraction
_SETTINGS_TABLE = "2"


def compare_numbers(numbers: "Mapping[str, pd.DataFrame]") -> "pd.DataFrame":
    """Do our numbers agree with the paper's?

    Args:
        numbers: Tidy numbers by table, from ``compute_numbers``.

    Returns:
        One row a published number: ``table``, ``row``, ``column``, ``paper``, ``ours``, ``difference`` (for a
        bound: by how much it is missed), ``tolerance``, ``agrees`` (True, False, or None where nothing can be
        said), ``n`` and ``n_paper`` runs behind the two, ``note``, and the keys.

    Example:
        >>> int(compare_numbers({}).agrees.notna().sum())
        0
    """
    pandas = load_optional("pandas", "comparing with the paper")
    ours = {identify(record): record for table in numbers.values() for record in table.to_dict("records")}
    errors = find_standard_errors(_published_records(), ours.values())
    records = [
        _compare(published, ours.get(identify(published)), errors.get(identify(published), math.nan))
        for published in _published_records()
    ]
    frame: pd.DataFrame = pandas.DataFrame.from_records(records, columns=[*COLUMNS, "relation", *KEYS])
    frame["agrees"] = frame["agrees"].astype("boolean")
    return frame


@lru_cache(maxsize=1)
def _published_records() -> list[dict[Any, Any]]:
    return published_numbers().to_dict("records")


def _compare(published: Mapping[Any, Any], ours: Mapping[Any, Any] | None, standard_error: float) -> dict[str, Any]:
    shared = {name: published[name] for name in ("table", "row", "column", "paper", "relation", *KEYS)}
    tolerance = find_tolerance(published)
    limit = "" if tolerance is None or published["table"] == _SETTINGS_TABLE else str(tolerance)
    if ours is None:
        note = "a setting, not a measurement" if published["table"] == _SETTINGS_TABLE else "not measured"
        return {**shared, "tolerance": limit, "agrees": None, "note": note}
    measured = {"ours": ours["value"], "n": ours["n"], "n_paper": ours["n_paper"], "tolerance": limit}
    return shared | measured | _judge(published, ours, tolerance, standard_error)


def _judge(
    published: Mapping[Any, Any], ours: Mapping[Any, Any], tolerance: Tolerance | None, standard_error: float
) -> dict[str, Any]:
    difference = _subtract(published, ours["value"])
    if ours["n"] < _ENOUGH * ours["n_paper"] or ours["n"] > ours["n_paper"]:
        note = f"{ours['n']} runs where the paper has {ours['n_paper']}: not judged"
        return {"difference": difference, "agrees": None, "note": _join(note, ours["note"])}
    if not ours["is_comparable"]:
        return {"difference": difference, "agrees": None, "note": _join("a smoke run: not judged", ours["note"])}
    if math.isnan(published["paper"]) or math.isnan(ours["value"]):
        return {"difference": math.nan, **_judge_missing(published["paper"], ours)}
    if tolerance is None:
        return {"difference": difference, "agrees": None, "note": "no tolerance is set for this number"}
    found = {"difference": difference, "note": ours["note"]}
    if tolerance.rule == "significance":
        same = is_significant(ours["value"]) == is_significant(published["paper"], published["relation"])
        return {**found, "agrees": same}
    limit = tolerance.limit(published["paper"], standard_error) + _half_digit(published, tolerance)
    if tolerance.rule == "standard_errors":
        found["tolerance"] = f"{limit:.3g}: {tolerance}"
    return {**found, "agrees": _holds(published["paper"], ours["value"], difference, tolerance, limit)}


def _judge_missing(paper: float, ours: Mapping[Any, Any]) -> dict[str, Any]:
    if math.isnan(paper) and math.isnan(ours["value"]):
        return {"agrees": True, "note": _join("the paper prints n/a too", ours["note"])}
    if math.isnan(paper):
        return {"agrees": False, "note": "the paper prints n/a, ours could be computed"}
    return {"agrees": False, "note": ours["note"]}


def _join(*notes: str) -> str:
    return "; ".join(note for note in notes if note)


def _subtract(published: Mapping[Any, Any], ours: float) -> float:
    difference = round(float(ours - published["paper"]), _DECIMALS)
    if published["relation"] in ("<", "<="):
        return max(difference, 0.0)
    return min(difference, 0.0) if published["relation"] in (">", ">=") else difference


def _half_digit(published: Mapping[Any, Any], tolerance: Tolerance) -> float:
    """What the paper's rounding may hide, where the limit does not include it."""
    return 0.5 * 10.0 ** -published["decimals"] if tolerance.rule in ("standard_errors", "factor") else 0.0


def _holds(paper: float, ours: float, difference: float, tolerance: Tolerance, limit: float) -> bool:
    if tolerance.rule == "factor":
        return max(paper, ours) <= FACTOR * (min(paper, ours) + limit)
    return abs(difference) <= limit + _ROUNDING
