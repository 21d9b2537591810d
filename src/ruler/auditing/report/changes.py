"""Reports of the same request side by side: what has changed from one to the next."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.auditing.findings import FamilyFinding, MetricFinding, Report
from ruler.auditing.report.display import format_estimate
from ruler.auditing.report.words import format_remaining
from ruler.auditing.verdict import count_flagged
from ruler.core.errors import InputError
from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.text import show_text

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ReportChanges:
    """What `compare_reports` found.

    Args:
        table: One row per report: verdict, what remains in outputs and layers, forget records, records that stand out,
            and per contrast what remains (or the AUC) with its interval, and its verdict.
        changes: Sentences, in order; empty if nothing changed that a report says.
        reports: By name, in order.
    """

    table: "pd.DataFrame"
    changes: list[str]
    reports: Mapping[str, Report] = field(repr=False)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the reports side by side as one HTML page, which loads nothing and can be passed on.

        Returns:
            The path.

        Raises:
            WriteError: The disk is full, or the folder is read-only.
        """
        load_optional("jinja2", "saving a comparison of reports")
        from ruler.auditing.report.changes_page import render_changes

        path = Path(path)
        write_atomically(path, render_changes(self.reports, self.changes))
        return path

    def __str__(self) -> str:
        body = self.table.T.to_string(na_rep="")
        return "\n".join([show_text(body), "", *(self.changes or ["Nothing has changed."])])

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(show_text(line))}</li>" for line in self.changes or ["Nothing has changed."])
        return f"{self.table.T.to_html(na_rep='', escape=True)}<ul>{lines}</ul>"


def compare_reports(
    reports: "Sequence[Report | str | PathLike[str]] | Mapping[str, Report | str | PathLike[str]]",
) -> ReportChanges:
    """What has changed between audits of the same records, such as before and after unlearning again?

    It describes: the intervals of one report overlap those of another by chance too, and no test is made of the
    difference. Where records, limit or error rate differ, it says so first.

    Args:
        reports: Two or more, in the order of time: reports, or folders that `Report.save` wrote; a dict names them.

    Raises:
        InputError: Fewer than two, or something that is no report.
        FileFormatError: A folder without a report that can be read.

    Example:
        >>> import numpy as np
        >>> from ruler.auditing import audit
        >>> rng = np.random.default_rng(0)
        >>> before, after = (audit(tuple(rng.normal(size=(n, 4)) + s for n in (40, 90, 40))) for s in (0.0, 1.0))
        >>> found = compare_reports({"before": before, "after": after})
        >>> list(found.table.index), "m4" in found.table
        (['before', 'after'], True)
    """
    import pandas as pd

    if not isinstance(reports, Mapping) and (isinstance(reports, str | Report) or not isinstance(reports, Sequence)):
        raise InputError(f"reports must be a list or dict of reports; got {type(reports).__name__}. Give a list.")
    given = dict(reports) if isinstance(reports, Mapping) else {f"report {n}": one for n, one in enumerate(reports, 1)}
    if len(given) < 2:
        raise InputError(f"reports must be at least two; got {len(given)}. Give one from before and one from after.")
    loaded = {str(name): _load(one, str(name)) for name, one in given.items()}
    names = list(dict.fromkeys(name for report in loaded.values() for name in report.metrics))
    rows = [
        {
            "verdict": report.verdict,
            "outputs": _describe_family(report.outputs),
            "layers": _describe_family(report.layers),
            "forget records": len(report.records),
            "records that stand out": count_flagged(report),
            **{name: _describe(report.metrics[name]) for name in names if name in report.metrics},
        }
        for report in loaded.values()
    ]
    changes = [line for pair in pairwise(loaded.items()) for line in _list_changes(*pair)]
    return ReportChanges(pd.DataFrame(rows, index=list(loaded)), changes, loaded)


def _load(given: Any, name: str) -> Report:
    if isinstance(given, str | PathLike):
        return Report.load(Path(given))
    if not isinstance(given, Report):
        raise InputError(f"{name} must be a Report or the folder of one; got {type(given).__name__}. Audit first.")
    return given


def _describe_family(found: FamilyFinding) -> str:
    return f"{format_remaining(found.remaining)}, {found.verdict}"


def _describe(metric: MetricFinding) -> str:
    amounts = [f"{format_remaining(one)} remains ({scale})" for scale, one in metric.remaining.items()]
    if amounts:
        return f"{', '.join(amounts)}, {metric.verdict}"
    if math.isnan(metric.effect):
        return metric.verdict
    return f"AUC {format_estimate(metric.effect, metric.place.interval)}, {metric.verdict}"


def _list_changes(first: tuple[str, Report], second: tuple[str, Report]) -> list[str]:
    """Sentences about two reports, conditions first, then what was found."""
    (old_name, old), (new_name, new) = first, second
    between = f"From {show_text(old_name)} to {show_text(new_name)}"
    lines = []
    if sorted(map(str, old.records["id"])) != sorted(map(str, new.records["id"])):
        lines.append(f"{between} the forget records are not the same, so that the numbers are about different records.")
    for name in ("limit", "confidence", "alpha", "scope", "control"):
        a, b = getattr(old.settings, name), getattr(new.settings, name)
        if a != b:
            lines.append(f"{between} {name} changed from {a} to {b}: verdicts follow different rules.")
    if old.verdict != new.verdict:
        lines.append(f"{between} the verdict changed from {old.verdict} to {new.verdict}.")
    for words, before, after in (
        ("what the model says", old.outputs, new.outputs),
        ("what its layers hold", old.layers, new.layers),
    ):
        if _describe_family(before) != _describe_family(after):
            lines.append(f"{between} {words} changed from {_describe_family(before)} to {_describe_family(after)}.")
    for name in (name for name in old.metrics if name in new.metrics):
        a, b = old.metrics[name], new.metrics[name]
        if a.verdict != b.verdict:
            lines.append(f"{between} {name} changed from {_describe(a)} to {_describe(b)}.")
    unpaired = sorted(old.metrics.keys() ^ new.metrics.keys())
    lines += [f"{name} is only in {old_name if name in old.metrics else new_name}." for name in unpaired]
    if count_flagged(old) != count_flagged(new):
        lines.append(f"{between} records that stand out changed from {count_flagged(old)} to {count_flagged(new)}.")
    gone = sorted({guard.name for guard in old.guards} - {guard.name for guard in new.guards})
    came = sorted({guard.name for guard in new.guards} - {guard.name for guard in old.guards})
    lines += [f"{between} the guard {name} no longer finds anything." for name in gone]
    return lines + [f"{between} the guard {name} found something." for name in came]
