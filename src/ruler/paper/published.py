"""The paper's own numbers as data: every cell of Tables 1 to 14, and the numbers stated in its text.

The files under ``published_tables/`` keep each cell as printed, so that they can be proofread against the
paper: ``<0.001`` is a bound, ``~0.60`` a rounded remark, ``19/20`` a count out of a total, ``n/a`` a number
that the paper says it could not compute, and an empty cell no number at all.
"""

import csv
import math
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ruler.core.errors import InputError
from ruler.core.optional import load_optional

if TYPE_CHECKING:
    import pandas as pd

TABLES = (*(str(number) for number in range(1, 15)), "text")
TEXT_KEYS = ("study", "dataset", "architecture", "forget_choice", "method", "other_method", "baseline", "source")
NUMBER_KEYS = ("forget_fraction", "learning_rate")
_VALUES = ("table", "row", "column", "paper", "relation", "is_bound", "decimals", "out_of")
COLUMNS = (*_VALUES, *TEXT_KEYS, *NUMBER_KEYS)
_PRINTED = re.compile(r"(<=|>=|<|>|~)?([+-]?\d+(?:\.(\d+))?)(?:/(\d+))?")


class PrintedNumber(NamedTuple):
    """A number as the paper prints it; NaN for n/a, and ``out_of`` NaN for all but counts such as 19/20."""

    paper: float
    relation: str = "="
    is_bound: bool = False
    decimals: int = 0
    out_of: float = math.nan


def parse_printed(text: str) -> PrintedNumber:
    """The number in a printed cell.

    Raises:
        InputError: Text that is not a number.

    Example:
        >>> parse_printed("<0.001")
        PrintedNumber(paper=0.001, relation='<', is_bound=True, decimals=3, out_of=nan)
    """
    if text == "n/a":
        return PrintedNumber(math.nan)
    match = _PRINTED.fullmatch(text)
    if match is None:
        raise InputError(f"a published cell must be a printed number; got {text!r}. Write it as the paper does.")
    relation, value, digits, total = match.groups()
    is_bound = relation not in (None, "~")
    return PrintedNumber(float(value), relation or "=", is_bound, len(digits or ""), float(total or math.nan))


def load_table(table: int | str) -> "pd.DataFrame":
    """Which numbers does this table of the paper print? 1 to 14, or "text" for those outside the tables' bodies.

    Returns:
        One row per number: ``table``, ``row`` (label), ``column`` (metric and statistic, e.g. ``m2_mean``),
        ``paper`` (the value), ``relation`` and ``is_bound`` (``<0.001`` is 0.001 with ``<``), ``decimals``
        printed, ``out_of`` for counts, and the keys to join with: those of ``TEXT_KEYS`` (empty text where a table has
        no such key) and of ``NUMBER_KEYS`` (NaN likewise).

    Example:
        >>> table = load_table(1)
        >>> table[(table.method == "scrub") & (table.column == "m2_mean")].paper.tolist()
        [-0.00121, -0.00122, -0.00207]
    """
    if str(table) not in TABLES:
        raise InputError(f"table must be 1 to 14 or 'text'; got {table!r}. Tables 7 and 8 are one study.")
    return _read_table(str(table)).copy()


def published_numbers() -> "pd.DataFrame":
    """Every number of the paper, one row each, with the columns of ``load_table``."""
    pandas = load_optional("pandas", "reading the published tables")
    frame: pd.DataFrame = pandas.concat([load_table(table) for table in TABLES], ignore_index=True)
    return frame


def read_rows(name: str) -> list[dict[str, str]]:
    """The rows of a file of ``published_tables/``."""
    with files("ruler.paper").joinpath("published_tables", name).open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


@cache
def _read_table(table: str) -> "pd.DataFrame":
    pandas = load_optional("pandas", "reading the published tables")
    rows = read_rows("text.csv" if table == "text" else f"table_{int(table):02d}.csv")
    records = [record for row in rows for record in _melt(table, row)]
    frame: pd.DataFrame = pandas.DataFrame.from_records(records, columns=COLUMNS)
    return frame


def _melt(table: str, row: dict[str, str]) -> list[dict[str, Any]]:
    keys: dict[str, Any] = {key: row.pop(key, "") for key in (*TEXT_KEYS, *NUMBER_KEYS)}
    parts = [keys["source"], keys["dataset"], keys["architecture"], keys["method"]]
    parts += [f"vs {keys['other_method']}"] if keys["other_method"] else []
    parts += [f"{keys['baseline']} baseline"] if keys["baseline"] else []
    parts += [f"{float(keys['forget_fraction']):.0%}"] if keys["forget_fraction"] else []
    parts += [f"lr {keys['learning_rate']}"] if keys["learning_rate"] else []
    keys |= {key: float(keys[key] or math.nan) for key in NUMBER_KEYS}
    head = {"table": table, "row": ", ".join(filter(None, parts)) or "all", **keys}
    cells = {row["column"]: row["value"]} if table == "text" else row
    return [{**head, "column": column, **parse_printed(text)._asdict()} for column, text in cells.items() if text]
