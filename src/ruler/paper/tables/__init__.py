"""Results -> the paper's tables: numbers under the published keys, and how each table is set and printed."""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ruler.core.registry import Registry
from ruler.paper.results import rank_condition, title_of
from ruler.paper.tables import diagnostics, tabular
from ruler.paper.tables.numbers import Number, as_frame, identify

if TYPE_CHECKING:
    import pandas as pd


class Printed(NamedTuple):
    """Text of a table, and the marks that each format writes in its own way."""

    text: str
    stars: int = 0
    is_bold: bool = False


def print_value(style: str, value: float, out_of: float = math.nan) -> Printed:
    """A number, and the total of a count that has one, in a style: the top of ``layouts.toml`` lists them.

    Example:
        >>> print_value("+.2f", 0.5).text, print_value("answer", 0.0).text
        ('+0.50', 'no')
        >>> print_value("p", 0.0004)
        Printed(text='<0.001', stars=3, is_bold=False)
    """
    if style == "p":
        stars = sum(value < level for level in (0.05, 0.01, 0.001))
        return Printed("<0.001" if value < 0.001 else f"{value:.3f}", stars)
    if style == "membership":
        return Printed(f"{value:.3f}", is_bold=round(abs(value - 0.5), 9) >= 0.05)
    if style == "count":
        return Printed(f"{value:.0f}" if math.isnan(out_of) else f"{value:.0f}/{out_of:.0f}", is_bold=value < out_of)
    if style == "answer":
        return Printed("yes" if value else "no")
    return Printed(f"{value:{style}}")


class Column(NamedTuple):
    """One printed column: a line of ``layouts.toml``, whose top says what its parts are."""

    group: str
    header: str
    column: str
    style: str
    spread: str = ""
    keys: Mapping[str, Any] = {}

    @property
    def title(self) -> str:
        """Its heading; the method's name where none is given."""
        return self.header or title_of(self.keys["method"])


Compute = Callable[["pd.DataFrame"], list[Number]]  # results -> numbers, none where the study was not run


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or one of ours.

    Args:
        rows: Keys that make a row, with a little space where the first one changes; none where nothing is printed.
        name: What a table of ours is called; empty for the paper's own, which have numbers.
    """

    compute: Compute
    caption: str
    rows: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    name: str = ""

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return self.caption.partition(". ")[0].rstrip(".")

    @property
    def headers(self) -> list[str]:
        """Headings of the keys that make a row."""
        return [_HEADERS[key] for key in self.rows]


_COMPUTE: dict[str, Compute] = {
    "1": tabular.TABLE_1,
    "3": tabular.TABLE_3,
    "4": tabular.TABLE_4,
    "5": tabular.compute_table_5,
    "6": tabular.TABLE_6,
    "7": partial(tabular.compute_learning_rates, part=1),
    "8": partial(tabular.compute_learning_rates, part=2),
    "9": tabular.compute_table_9,
    "10": tabular.compute_table_10,
    "11": tabular.compute_table_11,
    "12": partial(diagnostics.compute_conditions, table="12", study="large-tabular"),
    "13": partial(diagnostics.compute_conditions, table="13", study="images"),
    "14": partial(diagnostics.compute_conditions, table="14", study="faces"),
    "methods": tabular.compute_method_comparisons,
    "clinical": partial(diagnostics.compute_conditions, table="text", study="clinical"),
    "face_controls": diagnostics.compute_face_controls,
    "clinical_leak": diagnostics.compute_clinical_leak,
    "language_models": diagnostics.compute_language,
    "text": lambda results: tabular.compute_text(results) + diagnostics.compute_text(results),
}


def _read_table(name: str, layout: Mapping[str, Any]) -> PaperTable:
    columns = tuple(Column(*entries) for entries in layout.get("columns", ()))
    rows, title = tuple(layout.get("rows", ())), layout.get("name", "")
    return PaperTable(_COMPUTE[name], layout["caption"], rows, columns, title)


_LAYOUTS = tomllib.loads(files("ruler.paper").joinpath("layouts.toml").read_text(encoding="utf-8"))
TABLES: Registry[PaperTable] = Registry("table", {name: _read_table(name, _LAYOUTS[name]) for name in _COMPUTE})


def compute_numbers(results: "pd.DataFrame") -> "dict[str, pd.DataFrame]":
    """For each table a tidy frame of the numbers that checked results give, empty where its study was not run."""
    frames = {name: as_frame(table.compute(results)) for name, table in TABLES.items()}
    for name, frame in frames.items():
        frame.insert(0, "table", name)
    return frames


class PrintedRow(NamedTuple):
    """A row ready to be typeset: labels, cells, unrounded numbers by name, least number of runs, reasons for gaps."""

    keys: tuple[Any, ...]
    labels: list[str]
    cells: list[Printed]
    numbers: Mapping[str, float]
    runs: str
    notes: list[str]


_HEADERS = {
    "method": "Method",
    "other_method": "Against",
    "dataset": "Dataset",
    "architecture": "Model",
    "forget_choice": "Identities",
    "forget_fraction": "Forget fraction",
}
# Keys that tell the numbers of a table apart, and what stands for "no such key".
_MATCHED = {**dict.fromkeys((*_HEADERS, "baseline"), ""), "forget_fraction": None, "learning_rate": None}


def arrange(numbers: "pd.DataFrame", table: PaperTable) -> list[PrintedRow]:
    """Numbers in the rows and columns of the table; what is not there stays an empty cell."""
    found = {identify(record, ("column", *_MATCHED)): record for record in numbers.to_dict("records")}
    rows = {tuple(record[key] for key in table.rows) for record in found.values()}
    places = sorted((dict(zip(table.rows, values, strict=True)) for values in rows), key=rank_condition)
    return [_set_row(found, table, place) for place in places]


def _set_row(found: Mapping[Any, Any], table: PaperTable, place: Mapping[str, Any]) -> PrintedRow:
    cells, numbers, present = [], {}, []
    for column in table.columns:
        keys = [{**_MATCHED, **place, **column.keys}[key] for key in _MATCHED]
        telling = [str(value) for key, value in column.keys.items() if key != "other_method"]
        record, spread = (found.get((name, *keys)) for name in (column.column, column.spread))
        for name, one in ((column.column, record), (column.spread, spread)):
            if name:
                numbers["_".join([name, *telling])] = one["value"] if one else math.nan
        cells.append(_set_cell(column.style, record, spread))
        present += [record] if record else []
    runs = str(min((record["n"] for record in present), default=""))
    notes = [record["note"] for record in present if math.isnan(record["value"]) and record["note"]]
    return PrintedRow(tuple(place.values()), [_label(key, place) for key in place], cells, numbers, runs, notes)


def _set_cell(style: str, record: Any, spread: Any) -> Printed:
    if record is None or math.isnan(record["value"]):
        return Printed("n/a" if record else "")
    cell = print_value(style, record["value"], record["out_of"])
    if spread is None or math.isnan(spread["value"]):
        return cell
    return cell._replace(text=f"{cell.text} ± {print_value(style, spread['value']).text.lstrip('+')}")


def _label(key: str, place: Mapping[str, Any]) -> str:
    if key != "forget_fraction":
        return title_of(str(place[key]))
    # Other choices than random take whole groups, whatever share of the records these hold.
    return f"{100 * place[key]:g}%" if place.get("forget_choice", "random") == "random" else ""
