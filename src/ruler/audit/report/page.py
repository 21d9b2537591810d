"""Report to report.html: one file without network, raw data or outside fonts."""

import base64
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import ruler
from ruler.audit.findings import Report
from ruler.audit.report import display, figures, wording
from ruler.audit.report.record_tables import show_groups, show_records

_SEVERITY_WORDS = {"fail": "Fails", "warn": "Warning", "note": "Note"}
_MODEL_WORDS = {"unlearned": "Unlearned model", "oracle": "Oracle", "original": "Original model"}


@dataclass(frozen=True)
class Fact:
    """One thing that was compared: a large figure, its name, a remark."""

    name: str
    value: str
    remark: str


def render_page(report: Report) -> str:
    """The text of report.html.

    Args:
        report: Of an audit.

    Returns:
        HTML whose content policy lets nothing out and runs only the script that it carries.
    """
    style, script = _read_template("style.css"), _read_template("tables.js")
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            report=report,
            title=f"RULER audit: {report.verdict}",
            headline=wording.HEADLINES[report.verdict],
            meaning=wording.explain_meaning(report),
            limits=wording.explain_limits(report),
            control=wording.find_control(report),
            control_note=wording.CONTROL_NOTES[wording.find_control(report)],
            facts=_gather_facts(report),
            guards=sorted(report.guards, key=lambda guard: list(_SEVERITY_WORDS).index(guard.severity)),
            severity_words=_SEVERITY_WORDS,
            metrics=[metric for _, metric in sorted(report.metrics.items())],
            metric_words=wording.METRICS,
            effects=figures.draw_effects(report),
            distributions=_draw_distributions(report),
            ranks=figures.draw_ranks(report.distributions),
            tables={"records": show_records(report), "groups": show_groups(report)},
            settings=vars(report.settings),
            provenance=_flatten(report.provenance),
            output_rows=_tabulate_outputs(report.outputs),
            level=f"{100 * (1 - report.settings.alpha):g}%",
            version=ruler.__version__,
            style=Markup(style),
            script=Markup(script),
            style_hash=_hash_for_policy(style),
            script_hash=_hash_for_policy(script),
        )
    )
    return page.rstrip() + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ruler.audit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_show,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=display.format_number,
        p=display.format_p,
        interval=display.format_interval,
        count=display.format_count,
        records=display.count_records,
    )
    environment.tests["finite"] = lambda value: value is not None and math.isfinite(value)
    return environment


def _show(value: Any) -> Any:
    return display.show_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _read_template(name: str) -> str:
    return files("ruler.audit.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash_for_policy(content: str) -> Markup:
    return Markup("sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode())


def _gather_facts(report: Report) -> list[Fact]:
    control = wording.find_control(report)
    shapes = report.provenance.get("shapes")
    facts = [Fact("Forget", _count_side(report, "forget", shapes), "records that were to be forgotten")]
    if control == "held-out":
        facts.append(Fact("Held-out", _count_side(report, "held_out", shapes), "records no model was trained on"))
    facts.append(Fact("Retain", _count_side(report, "retain", shapes), "records the model may know"))
    facts.append(Fact("Control", control.capitalize(), wording.CONTROLS[control]))
    facts.append(Fact("Oracle", *_describe_oracle(report)))
    has_original = (
        any(metric.original_effect is not None for metric in report.metrics.values()) or "m3" in report.metrics
    )
    original = (
        ("Given", "so old contrasts and new ones are told apart")
        if has_original
        else (
            "Not given",
            "so the direction is read as in the paper",
        )
    )
    facts.append(Fact("Original model", *original))
    return facts


def _count_side(report: Report, side: str, shapes: Any) -> str:
    """How many records a side has: from the recorded shapes, else from what the plots keep of it."""
    try:
        return display.format_count(int(shapes["unlearned"][side][0]))
    except (KeyError, TypeError, IndexError, ValueError):
        pass
    if side == "forget":
        return display.format_count(len(report.records))
    n_plotted = len(report.distributions.nearest_similarity.get(side, ()))
    is_whole = n_plotted < report.settings.n_plotted
    return f"{'' if is_whole else 'at least '}{n_plotted:,}" if n_plotted else "\u2013"


def _describe_oracle(report: Report) -> tuple[str, str]:
    if report.pairing is None:
        return "Not given", "so M1 to M3 could not be computed"
    if report.pairing.is_aligned:
        return "Aligned", "not seed-paired: turned onto the unlearned model\u2019s axes first"
    return "Seed-paired" if report.pairing.is_paired else "Given", "a model retrained without the forget records"


def _draw_distributions(report: Report) -> list[Any]:
    kept = report.distributions
    drawn = (
        figures.draw_distributions("oracle", "Similarity to the oracle", kept.oracle_similarity),
        figures.draw_distributions("nearest", "Similarity to the nearest retain record", kept.nearest_similarity),
    )
    return [figure for figure in drawn if figure is not None]


def _flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{name} \u203a ")
        elif isinstance(value, list | tuple):
            rows.append((name, " \u00d7 ".join(map(str, value)) if "shapes" in name else ", ".join(map(str, value))))
        else:
            rows.append((name, str(value)))
    return rows


def _tabulate_outputs(outputs: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    names = list(dict.fromkeys(name for numbers in outputs.values() for name in numbers))
    rows = [
        (_MODEL_WORDS.get(model, model), [display.format_number(numbers.get(name), 3) for name in names])
        for model, numbers in outputs.items()
    ]
    return [name.replace("_", " ") for name in names], rows
