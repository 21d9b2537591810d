"""Our numbers beside the published ones."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ruler.core.optional import load_optional
from ruler.paper.published import published_numbers
from ruler.paper.tables.numbers import KEYS
from ruler.paper.tolerances import Tolerance, find_tolerance, is_significant

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
    ours = {_identify(record): record for table in numbers.values() for record in table.to_dict("records")}
    records = [_compare(published, ours.get(_identify(published))) for published in _published_records()]
    frame: pd.DataFrame = pandas.DataFrame.from_records(records, columns=[*COLUMNS, "relation", *KEYS])
    frame["agrees"] = frame["agrees"].astype("boolean")
    return frame


@lru_cache(maxsize=1)
def _published_records() -> list[dict[Any, Any]]:
    return published_numbers().to_dict("records")


def _identify(record: Mapping[Any, Any]) -> tuple[Any, ...]:
    values = (record[name] for name in ("table", "column", *KEYS))
    return tuple(None if value != value else value for value in values)


def _compare(published: Mapping[Any, Any], ours: Mapping[Any, Any] | None) -> dict[str, Any]:
    shared = {name: published[name] for name in ("table", "row", "column", "paper", "relation", *KEYS)}
    tolerance = find_tolerance(published)
    limit = "" if tolerance is None or published["table"] == _SETTINGS_TABLE else str(tolerance)
    if ours is None:
        note = "a setting, not a measurement" if published["table"] == _SETTINGS_TABLE else "not measured"
        return {**shared, "tolerance": limit, "agrees": None, "note": note}
    measured = {"ours": ours["value"], "n": ours["n"], "n_paper": ours["n_paper"], "tolerance": limit}
    return shared | measured | _judge(published, ours, tolerance)


def _judge(published: Mapping[Any, Any], ours: Mapping[Any, Any], tolerance: Tolerance | None) -> dict[str, Any]:
    difference = _subtract(published, ours["value"])
    if ours["n"] < _ENOUGH * ours["n_paper"] or ours["n"] > ours["n_paper"]:
        note = f"{ours['n']} runs where the paper has {ours['n_paper']}: not judged"
        return {"difference": difference, "agrees": None, "note": _join(note, ours["note"])}
    if math.isnan(published["paper"]) or math.isnan(ours["value"]):
        return {"difference": math.nan, **_judge_missing(published["paper"], ours)}
    if tolerance is None:
        return {"difference": difference, "agrees": None, "note": "no tolerance is set for this number"}
    agrees = _holds(published, ours["value"], difference, tolerance)
    return {"difference": difference, "agrees": agrees, "note": ours["note"]}


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


def _holds(published: Mapping[Any, Any], ours: float, difference: float, tolerance: Tolerance) -> bool:
    if tolerance.rule == "significance":
        return is_significant(ours) == is_significant(published["paper"], published["relation"])
    return abs(difference) <= tolerance.limit(published["paper"]) + _ROUNDING
