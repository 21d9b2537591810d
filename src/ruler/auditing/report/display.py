"""Text and numbers of a report as a person should see them, whatever is in them."""

import math
import unicodedata
from typing import Any

_MINUS = "\u2212"
_DASH = "\u2013"
# Characters that reorder, hide or break what stands around them. Joiners are left: scripts and emoji need them.
_HIDDEN = {0x00AD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF, *range(0x2060, 0x2070)}
_REORDERING = {*range(0x202A, 0x202F), *range(0xE0000, 0xE0080)}
_UNSEEN = {code: f"\\u{{{code:x}}}" for code in _HIDDEN | _REORDERING}


def show_text(value: Any) -> str:
    r"""Text in which nothing is hidden: control and direction characters become escapes.

    Example:
        >>> show_text("ann\x1b[31m")
        'ann\\u{1b}[31m'
    """
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_show_character, text))


def _show_character(character: str) -> str:
    code = ord(character)
    if code in _UNSEEN:
        return _UNSEEN[code]
    is_control = unicodedata.category(character) in ("Cc", "Cs") and character not in "\n\t"
    return f"\\u{{{code:x}}}" if is_control else character


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN or pandas' NA."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def format_number(value: float | None, digits: int = 4, *, is_signed: bool = False) -> str:
    """A number with a real minus, or a dash where there is none.

    Example:
        >>> format_number(-0.00412), format_number(float("nan"))
        ('\u22120.0041', '\u2013')
    """
    if value is None or not math.isfinite(value):
        return _DASH
    text = f"{value:+.{digits}f}" if is_signed else f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", _MINUS)


def format_p(value: float | None) -> str:
    """A p-value to three places, smaller ones to four.

    Example:
        >>> format_p(0.2361), format_p(0.0005), format_p(1e-9)
        ('0.236', '0.0005', '<0.0001')
    """
    if value is None or not math.isfinite(value):
        return _DASH
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


def format_count(count: int) -> str:
    """A count with thousands set apart.

    Example:
        >>> format_count(20000)
        '20,000'
    """
    return f"{count:,}"


def count_records(count: int, noun: str = "record") -> str:
    """A count and its noun.

    Example:
        >>> count_records(1), count_records(1200, "group")
        ('1 record', '1,200 groups')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def choose_digits(values: Any, *, least: int = 3, most: int = 7) -> int:
    """Decimals that tell most of these values apart: two beyond the place of their spread.

    Example:
        >>> choose_digits([0.9991, 0.9993, 0.9996])
        6
    """
    import numpy as np

    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    spread = float(np.subtract(*np.quantile(finite, [0.9, 0.1]))) if len(finite) else 0.0
    if spread <= 0:
        return min(4, most)
    return int(np.clip(math.ceil(-math.log10(spread)) + 2, least, most))
