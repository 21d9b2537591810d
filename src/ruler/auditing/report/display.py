"""Text and numbers of a report as a person should see them, whatever is in them."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

DASH = "\u2013"


def make_encodable(value: object) -> str:
    """Text that UTF-8 can hold: lone surrogates become escapes."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def format_number(value: float | None, digits: int = 4, *, is_signed: bool = False) -> str:
    """A number with a real minus, or a dash where there is none.

    Example:
        >>> format_number(-0.00412), format_number(float("nan"))
        ('\u22120.0041', '\u2013')
    """
    if value is None or not math.isfinite(value):
        return DASH
    text = f"{value:+.{digits}f}" if is_signed else f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "\u2212")


def format_p(value: float | None) -> str:
    """A p-value to three places, smaller ones to four.

    Example:
        >>> format_p(0.2361), format_p(0.0005), format_p(1e-9)
        ('0.236', '0.0005', '<0.0001')
    """
    if value is None or not math.isfinite(value):
        return DASH
    if value < 0.0001:
        return "<0.0001"
    return f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def format_interval(interval: tuple[float, float] | None, digits: int = 4) -> str:
    """An interval in brackets, or nothing where it could not be computed.

    Example:
        >>> format_interval((0.25, 0.381), digits=2)
        '[0.25, 0.38]'
    """
    if interval is None or not all(map(math.isfinite, interval)):
        return ""
    return f"[{format_number(interval[0], digits)}, {format_number(interval[1], digits)}]"


def format_estimate(value: float | None, interval: tuple[float, float], digits: int = 2) -> str:
    """A number followed by its interval.

    Example:
        >>> format_estimate(0.3, (0.25, 0.381))
        '0.30 [0.25, 0.38]'
    """
    return f"{format_number(value, digits)} {format_interval(interval, digits)}".rstrip()


def count_records(count: int, noun: str = "record") -> str:
    """A count and its noun.

    Example:
        >>> count_records(1), count_records(1200, "group")
        ('1 record', '1,200 groups')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def choose_digits(values: "FloatArray | Sequence[float] | pd.Series[float]") -> int:
    """Decimals that tell most of these values apart: two beyond the place of their spread, and three to seven.

    Example:
        >>> choose_digits([0.9991, 0.9993, 0.9996])
        6
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    spread = float(np.subtract(*np.quantile(finite, [0.9, 0.1]))) if len(finite) else 0.0
    if spread <= 0:
        return 4
    return int(np.clip(math.ceil(-math.log10(spread)) + 2, 3, 7))
