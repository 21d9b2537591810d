"""Pieces of a Markdown page: tables, and numbers in words."""

import math
from collections.abc import Iterable, Sequence

from ruler.paper.typeset import escape_markdown


def table_lines(header: Iterable[str], rows: Iterable[Sequence[str]], escaped: tuple[int, ...] = ()) -> list[str]:
    """A Markdown table, the cells of the given columns escaped.

    Example:
        >>> table_lines(["a", "b"], [["x_y", "1"]], escaped=(0,))
        ['| a | b |', '| --- | --- |', '| x\\\\_y | 1 |']
    """
    names = list(header)
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    for row in rows:
        cells = [escape_markdown(cell) if index in escaped else cell for index, cell in enumerate(row)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def print_number(value: float, form: str = ".4g") -> str:
    """A number, n/a where it could not be computed.

    Example:
        >>> print_number(0.51234, ".3f"), print_number(float("nan"))
        ('0.512', 'n/a')
    """
    return "n/a" if math.isnan(value) else f"{value:{form}}"


def print_if_known(value: float, form: str = ".3f", spread: float = math.nan) -> str:
    """A number with its spread, empty where it was not measured.

    Example:
        >>> print_if_known(0.5, spread=0.01), print_if_known(float("nan"))
        ('0.500 ± 0.010', '')
    """
    if math.isnan(value):
        return ""
    tail = "" if math.isnan(spread) else f" ± {spread:{form.lstrip('+')}}"
    return f"{value:{form}}{tail}"


def print_range(values: Iterable[float], form: str = ".3f") -> str:
    """From the least to the most; one number where they print alike, empty where none is known.

    Example:
        >>> print_range([0.512, 0.49, float("nan")]), print_range([])
        ('0.490 to 0.512', '')
    """
    known = [value for value in values if not math.isnan(value)]
    ends = [f"{end:{form}}" for end in ((min(known), max(known)) if known else ())]
    return " to ".join(dict.fromkeys(ends))
