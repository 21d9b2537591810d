"""How a table is set: which numbers stand in which row and column, and how each is printed."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ruler.paper.names import rank_of, title_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Cell:
    """A printed cell: text, and the marks that each format writes in its own way."""

    text: str
    stars: int = 0
    is_bold: bool = False


Print = Callable[[float, float], Cell]  # value and, for a count, its total


def print_fixed(decimals: int, *, signed: bool = False) -> Print:
    """Fixed decimals, with a sign where the paper writes one.

    Example:
        >>> print_fixed(2, signed=True)(0.5, float("nan")).text
        '+0.50'
    """
    sign = "+" if signed else ""
    return lambda value, out_of: Cell(f"{value:{sign}.{decimals}f}")


def print_p(value: float, out_of: float) -> Cell:
    """A p-value with the paper's stars.

    Example:
        >>> print_p(0.0004, float("nan"))
        Cell(text='<0.001', stars=3, is_bold=False)
    """
    stars = sum(value < level for level in (0.05, 0.01, 0.001))
    return Cell("<0.001" if value < 0.001 else f"{value:.3f}", stars=stars)


def print_membership(value: float, out_of: float) -> Cell:
    """Accuracy of a membership attack, bold outside the pass window of 0.05 around chance."""
    return Cell(f"{value:.3f}", is_bold=round(abs(value - 0.5), 9) >= 0.05)


def print_count(value: float, out_of: float) -> Cell:
    """A count, out of its total where it has one; bold when not all."""
    if math.isnan(out_of):
        return Cell(f"{value:.0f}")
    return Cell(f"{value:.0f}/{out_of:.0f}", is_bold=value < out_of)


def print_answer(value: float, out_of: float) -> Cell:
    """1 as yes, 0 as no.

    Example:
        >>> print_answer(0.0, float("nan")).text
        'no'
    """
    return Cell("yes" if value else "no")


@dataclass(frozen=True)
class Column:
    """One printed column.

    Args:
        header: Its heading.
        column: Name of the number.
        style: How to print it.
        group: Heading over several columns.
        keys: Keys of the number beyond those of the row.
        spread: Name of a second number, printed after a plus-minus sign.
    """

    header: str
    column: str
    style: Print
    group: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    spread: str = ""

    def name(self, column: str) -> str:
        """What one of its numbers is called in a CSV file."""
        telling = (str(value) for key, value in self.keys.items() if key != "other_method")
        return "_".join([column, *telling])


@dataclass(frozen=True)
class Layout:
    """Rows by keys, a little space where the first key changes; columns by number."""

    caption: str
    rows: tuple[str, ...]
    columns: tuple[Column, ...]
    first: tuple[str, ...] = ()  # values of a key that stand before all others


@dataclass(frozen=True)
class Row:
    """A printed row: its labels and cells, its unrounded numbers by name, and the runs behind each at least."""

    keys: tuple[Any, ...]
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    numbers: Mapping[str, float]
    runs: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PrintedTable:
    """A table ready to be typeset."""

    caption: str
    row_headers: tuple[str, ...]
    row_keys: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Every reason for a missing number, once."""
        return tuple(dict.fromkeys(note for row in self.rows for note in row.notes))


_HEADERS = {
    "method": "Method",
    "other_method": "Against",
    "dataset": "Dataset",
    "architecture": "Model",
    "forget_choice": "Identities",
    "forget_fraction": "Forget fraction",
}


def arrange(numbers: "pd.DataFrame", layout: Layout) -> PrintedTable:
    """Numbers in the rows and columns of the layout; what is not there stays an empty cell."""
    found = {(record["column"], *_identify(record)): record for record in numbers.to_dict("records")}
    combinations = {tuple(record[key] for key in layout.rows) for record in found.values()}
    ordered = sorted(combinations, key=lambda values: _rank(layout, values))
    return PrintedTable(
        caption=layout.caption,
        row_headers=tuple(_HEADERS[key] for key in layout.rows),
        row_keys=layout.rows,
        columns=layout.columns,
        rows=tuple(_set_row(found, layout, values) for values in ordered),
    )


# Keys that tell numbers of a table apart, and what stands for "no such key".
_MATCHED: dict[str, Any] = {"dataset": "", "architecture": "", "forget_choice": "", "method": "", "other_method": ""}
_MATCHED |= {"baseline": "", "forget_fraction": None, "learning_rate": None}


def _identify(record: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(None if record[key] != record[key] else record[key] for key in _MATCHED)


def _rank(layout: Layout, values: Iterable[Any]) -> list[Any]:
    pairs = zip(layout.rows, values, strict=True)
    return [(value not in layout.first, rank_of(key, value)) for key, value in pairs]


def _set_row(found: Mapping[Any, Any], layout: Layout, values: tuple[Any, ...]) -> Row:
    keys = dict(zip(layout.rows, values, strict=True))
    picked = [_pick(found, column.column, keys | dict(column.keys)) for column in layout.columns]
    spreads = [
        _pick(found, column.spread, keys | dict(column.keys)) if column.spread else None for column in layout.columns
    ]
    present = [record for record in picked if record is not None]
    return Row(
        keys=values,
        labels=tuple(_label(key, keys) for key in keys),
        cells=tuple(map(_set_cell, layout.columns, picked, spreads)),
        numbers=_name_numbers(layout.columns, picked, spreads),
        runs=str(min((record["n"] for record in present), default="")),
        notes=tuple(record["note"] for record in present if math.isnan(record["value"]) and record["note"]),
    )


def _pick(found: Mapping[Any, Any], column: str, keys: Mapping[str, Any]) -> Any:
    return found.get((column, *(keys.get(key, default) for key, default in _MATCHED.items())))


def _name_numbers(columns: tuple[Column, ...], picked: list[Any], spreads: list[Any]) -> dict[str, float]:
    numbers = {}
    for column, record, spread in zip(columns, picked, spreads, strict=True):
        numbers[column.name(column.column)] = math.nan if record is None else record["value"]
        if column.spread:
            numbers[column.name(column.spread)] = math.nan if spread is None else spread["value"]
    return numbers


def _set_cell(column: Column, record: Any, spread: Any) -> Cell:
    if record is None:
        return Cell("")
    if math.isnan(record["value"]):
        return Cell("n/a")
    cell = column.style(record["value"], record["out_of"])
    if spread is None or math.isnan(spread["value"]):
        return cell
    tail = column.style(spread["value"], math.nan).text.lstrip("+")
    return Cell(f"{cell.text} ± {tail}", cell.stars, cell.is_bold)


def _label(key: str, keys: Mapping[str, Any]) -> str:
    if key != "forget_fraction":
        return title_of(str(keys[key]))
    # Other choices than random take whole groups, whatever share of the records these hold.
    return f"{100 * keys[key]:g}%" if keys.get("forget_choice", "random") == "random" else ""
