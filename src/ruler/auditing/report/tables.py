"""Records and groups as the page's tables: columns with their words, values safe to embed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ruler.auditing.records import ALIKE, NOT_JUDGED
from ruler.auditing.report.display import DASH, choose_digits, format_number, format_p
from ruler.core.text import show_text

if TYPE_CHECKING:
    import pandas as pd

PLAIN = [ALIKE, NOT_JUDGED]  # findings of records that do not stand out
_TEXTS = ("text", "finding", "verdict")
_N_FIRST = 25
_MOST_CHARACTERS = 8_000_000

# label, kind, meaning
COLUMNS = {
    "id": ("Record", "text", "Its id."),
    "group": ("Group", "text", "The erasure request, or person, that it belongs to."),
    "n_records": ("Records", "count", "Forget records in the group."),
    "remaining": (
        "Remaining",
        "percent",
        "How much remains: 0% is like records that were never trained on, 100% like typical records that were.",
    ),
    "low": ("From", "percent", "Lower end of its interval."),
    "high": ("To", "percent", "Upper end of its interval."),
    "at_least": ("At least", "percent", "One-sided lower limit."),
    "at_most": ("At most", "percent", "One-sided upper limit, from which the verdict is read."),
    "verdict": ("Verdict", "verdict", "Of this group, by the rule of the whole audit."),
    "n_flagged": ("Flagged", "count", "How many of these records stand out individually."),
    "finding": (
        "Finding",
        "finding",
        f"How it stands out, if q is at most the audit\u2019s alpha; otherwise \u201c{ALIKE}\u201d, or "
        f"\u201c{NOT_JUDGED}\u201d if there is no q.",
    ),
    "q_value": ("q", "p", "p corrected by Benjamini and Hochberg: the expected share of false alarms at this q."),
    "p_value": ("p", "p", "Share of held-out records at least as unusual, by whichever deciding score shows it most."),
    "oracle_similarity": ("Oracle similarity", "number", "Cosine similarity to the same record in the oracle."),
    "oracle_gap": ("Oracle gap", "signed", "Oracle similarity minus the median of the retain records."),
    "nearest_similarity": ("Nearest similarity", "number", "Cosine similarity to the nearest retain record."),
    "nearest_retain": ("Nearest retain", "text", "The id of that retain record."),
    "percentile_rank": ("Rank", "number", "Share of retain records that lie no closer to another retain record."),
    "norm_ratio": ("Norm ratio", "number", "Norm of its representation divided by that in the oracle; 1 means equal."),
    "loss": ("Loss", "number", "The model\u2019s loss on the record."),
    "loss_gap": (
        "Loss gap",
        "signed",
        "Loss minus the oracle\u2019s; below 0, the model answers better than the oracle.",
    ),
    "shift": ("Shift", "signed", "Above 0: unlearning moved the record towards the oracle; below 0: away."),
}


@dataclass(frozen=True)
class Column:
    """One column of a table on the page."""

    key: str
    label: str
    kind: str
    meaning: str
    digits: int


@dataclass(frozen=True)
class PageTable:
    """A table of the page: the first rows as text for readers without scripts, all of them as data for the script.

    Args:
        columns: Those that hold something.
        first: Formatted cells of the first rows, those that stand out most on top.
        findings: The different findings, for the filter.
        is_clipped: Names were too long to carry whole.
    """

    noun: str
    n_rows: int
    columns: tuple[Column, ...]
    first: tuple[tuple[str, ...], ...]
    data: dict[str, Any]
    findings: tuple[str, ...]
    is_clipped: bool


def show_table(
    frame: "pd.DataFrame | None",
    noun: str,
    *,
    columns: Mapping[str, tuple[str, str, str]] = COLUMNS,
    n_first: int = _N_FIRST,
) -> PageTable | None:
    """Records, groups or methods, those that stand out most first; None where there are none."""
    if frame is None or frame.empty:
        return None
    frame = frame.sort_values([name for name in ("q_value", "p_value") if name in frame], kind="stable")
    names = [*(name for name in columns if name in frame), *(name for name in frame if name not in columns)]
    filled = [frame[name] for name in names if not frame[name].isna().all()]
    described = tuple(_describe(values, columns) for values in filled)
    limit = max(200, _MOST_CHARACTERS // len(frame))
    values = {column.key: _plain(cells, column, limit) for cells, column in zip(filled, described, strict=True)}
    cells = ([_format(value, column) for value in values[column.key][:n_first]] for column in described)
    return PageTable(
        noun=noun,
        n_rows=len(frame),
        columns=described,
        first=tuple(zip(*cells, strict=True)),
        data={"noun": noun, "plain": PLAIN, "columns": [vars(column) for column in described], "values": values},
        findings=tuple(sorted({str(finding) for finding in values.get("finding", []) if finding})),
        is_clipped=any(isinstance(cell, str) and len(cell) > limit for cells in values.values() for cell in cells),
    )


def _describe(values: "pd.Series[Any]", columns: Mapping[str, tuple[str, str, str]]) -> Column:
    is_number = getattr(values.dtype, "kind", "O") in "fiu"
    label, kind, meaning = columns.get(str(values.name), (str(values.name), "number", ""))
    if kind not in _TEXTS and not is_number:
        kind = "text"
    return Column(show_text(values.name), show_text(label), kind, meaning, choose_digits(values) if is_number else 0)


def _plain(values: "pd.Series[Any]", column: Column, limit: int) -> list[Any]:
    """Numbers to nine digits, everything else as visible text, missing values as None."""
    if column.kind not in _TEXTS:
        return [float(f"{value:.9g}") if math.isfinite(value) else None for value in values]
    texts = (None if is_missing else show_text(value) for value, is_missing in zip(values, values.isna(), strict=True))
    return [text if text is None or len(text) <= limit else f"{text[:limit]}\u2026" for text in texts]


def _format(value: Any, column: Column) -> str:
    """A cell's text, by the same rules as tables.js."""
    if value is None:
        return DASH
    if column.kind in _TEXTS:
        return str(value)
    if column.kind == "p":
        return format_p(value)
    if column.kind == "count":
        return f"{value:,.0f}"
    if column.kind == "percent":
        return f"{format_number(100 * value, 0)}%"
    return format_number(value, column.digits, is_signed=column.kind == "signed")
