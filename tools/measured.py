"""Rows of the calibration study -> the tables of docs/statistics.md."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.files import write_atomically

Row = dict[str, Any]
_ALARMS = ("m2", "m4", "overall", "placebo_m2", "placebo_m4")
_PAPER = ("paper_m2_negative", "paper_m2_rejects", "paper_m4_rejects")
_LEVELS = (0.01, 0.05, 0.10, 0.25, 0.50, 0.75)
_VERDICTS = ("residual", "displaced", "erased", "inconclusive")


def tabulate_null(rows: list[Row], real_sets: Iterable[str]) -> str:
    """False alarms a set, of our tests and of the paper's rules."""
    head = ["perfectly unlearned", "audits", "M2", "M4", "overall", "M2, placebo", "M4, placebo"]
    head += ["paper: M2 < 0", "paper: M2 t test", "paper: M4 z test"]
    parts = dict(by_part(rows))
    names = [name for name in parts if name in set(real_sets)]
    pooled = {"**all real sets**": [row for name in names for row in parts[name]]}
    ordered = {**{name: parts[name] for name in names}, **pooled, **parts}
    lines = []
    for part, some in ordered.items():
        alarms = [share(some, lambda row, key=key: is_alarm(row[key])) for key in _ALARMS]
        lines.append([part, str(len(some)), *alarms, *(share(some, lambda row, key=key: row[key]) for key in _PAPER)])
    return tabulate(head, lines)


def tabulate_uniformity(rows: list[Row]) -> str:
    """Shares of p-values under several levels: the level itself, if p-values are uniform."""
    lines = [
        [
            name.upper(),
            *(share(rows, lambda row, key=f"{name}_p", level=level: row[key] <= level) for level in _LEVELS),
        ]
        for name in ("m2", "m4")
    ]
    return tabulate(["p-value at most", *(f"{level:.2f}" for level in _LEVELS)], lines)


def tabulate_power(rows: list[Row]) -> str:
    """Verdicts on records that were memorised on purpose."""
    head = ["unlearned by", "audits", *_VERDICTS, "M2 residual", "M4 residual", "M4 displaced"]
    lines = []
    for part, some in by_part(rows):
        overall = [share(some, lambda row, verdict=verdict: row["overall"] == verdict) for verdict in _VERDICTS]
        single = [
            share(some, lambda row, name=name, verdict=verdict: row[name] == verdict)
            for name, verdict in (("m2", "residual"), ("m4", "residual"), ("m4", "displaced"))
        ]
        left = np.median([row["m2_share_left"] for row in some if row["m2_share_left"] is not None])
        effects = [f"{np.mean([row[key] for row in some]):.2f}" for key in ("m2_effect", "m4_effect")]
        lines.append([part, str(len(some)), *overall, *single, f"{left:.2f}", *effects])
    return tabulate([*head, "M2 contrast left (median)", "M2 AUC (mean)", "M4 AUC (mean)"], lines)


def tabulate_unpaired(rows: list[Row]) -> str:
    """False alarms against an oracle that shares no axes with the model."""
    head = ["oracle of another start", "audits", "M2 alarms, aligned", "M4 alarms", "M2 alarms, plain"]
    lines = []
    for part, some in by_part(rows):
        alarms = [share(some, lambda row, key=key: is_alarm(row[key])) for key in ("m2", "m4", "plain_m2")]
        means = [f"{np.mean([row[key] for row in some]):.4f}" for key in ("m2_value", "plain_m2_value")]
        lines.append([part, str(len(some)), *alarms, *means])
    return tabulate([*head, "M2 aligned (mean)", "M2 plain (mean)"], lines)


def tabulate_small(rows: list[Row]) -> str:
    """Whether the minimum detectable effect is found as often as it promises."""
    head = ["forget records", "audits", "minimum detectable effect", "found at that effect", "false alarms"]
    lines = [
        [part, str(len(some)), f"{np.mean([row['mde'] for row in some]):.3f}"]
        + [share(some, lambda row, key=key: row[key] <= 0.05) for key in ("p_moved", "p")]
        for part, some in by_part(rows)
    ]
    return tabulate(head, lines)


def is_alarm(verdict: str) -> bool:
    """A finding against the model."""
    return verdict in ("residual", "displaced")


def share(rows: list[Row], test: Callable[[Row], bool]) -> str:
    """Percent of rows that pass."""
    return f"{100 * np.mean([test(row) for row in rows]):.1f}%"


def tabulate(head: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def by_part(rows: list[Row]) -> Iterator[tuple[str, list[Row]]]:
    """Rows of each part, in order."""
    for part in dict.fromkeys(row["part"] for row in rows):
        yield part, [row for row in rows if row["part"] == part]


def write_tables(page: Path, tables: dict[str, str]) -> None:
    """Put each table between its markers in the page."""
    text = page.read_text()
    for name, table in tables.items():
        pattern = rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)"
        text, n_found = re.subn(pattern, lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text, flags=re.S)
        assert n_found == 1, f"{page.name} must hold the markers of {name} once"
    write_atomically(page, text)
