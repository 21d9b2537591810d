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

from ruler.auditing.findings import Report
from ruler.auditing.records import ALIKE
from ruler.auditing.report import display, figures, wording
from ruler.auditing.report.record_tables import show_groups, show_records
from ruler.core.version import __version__

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
            headline=wording.choose_headline(report),
            meaning=wording.explain_meaning(report),
            limits=wording.explain_limits(report),
            control=wording.find_control(report),
            control_note=wording.CONTROL_NOTES[wording.find_control(report)],
            facts=_gather_facts(report),
            guards=sorted(report.guards, key=lambda guard: list(_SEVERITY_WORDS).index(guard.severity)),
            severity_words=_SEVERITY_WORDS,
            metrics=[metric for _, metric in sorted(report.metrics.items())],
            metric_words=wording.METRICS,
            gauge=figures.draw_gauge(report),
            effects=figures.draw_effects(report),
            distributions=_draw_distributions(report),
            ranks=figures.draw_ranks(report.distributions),
            alike=ALIKE,
            tables={"records": show_records(report), "groups": show_groups(report)},
            settings=vars(report.settings),
            provenance=_list_provenance(report.provenance),
            arrays=_list_arrays(report.provenance),
            output_rows=_tabulate_outputs(report.outputs),
            level=f"{100 * (1 - report.settings.alpha):g}%",
            version=__version__,
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
        loader=PackageLoader("ruler.auditing.report"),
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
    return files("ruler.auditing.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash_for_policy(content: str) -> Markup:
    return Markup("sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode())


def _gather_facts(report: Report) -> list[Fact]:
    facts = [Fact("Forget", _count_side(report, "forget"), "records that were to be forgotten")]
    if wording.find_control(report) == "held-out":
        facts.append(Fact("Held-out", _count_side(report, "held_out"), "records no model was trained on: the control"))
    else:
        facts.append(Fact("Control", "Placebo", "random sets in place of held-out records: weaker"))
    facts.append(Fact("Retain", _count_side(report, "retain"), "records that the model may know"))
    facts.append(Fact("Oracle", *_describe_oracle(report)))
    has_original = any(metric.original_effect is not None for metric in report.metrics.values())
    known = ("Given", "old contrasts and new ones are told apart")
    facts.append(
        Fact("Original model", *(known if has_original else ("Not given", "direction is read as in the paper")))
    )
    return facts


def _count_side(report: Report, side: str) -> str:
    try:
        return display.format_count(int(report.provenance["arrays"]["unlearned"][side]["shape"][0]))
    except (KeyError, TypeError, IndexError, ValueError):  # provenance from elsewhere
        return display.format_count(len(report.records)) if side == "forget" else "\u2013"


def _describe_oracle(report: Report) -> tuple[str, str]:
    if report.pairing is None:
        return "Not given", "M1 to M3 could not be computed"
    if report.pairing.is_aligned:
        return "Aligned", "retrained from another seed: turned onto the model\u2019s axes first"
    return "Given", "retrained without the forget records" + (", same seed" if report.pairing.is_paired else "")


def _draw_distributions(report: Report) -> list[Any]:
    kept = report.distributions
    drawn = (
        figures.draw_distributions("oracle", "Similarity to the oracle", kept.oracle_similarity),
        figures.draw_distributions("nearest", "Similarity to the nearest retain record", kept.nearest_similarity),
    )
    return [figure for figure in drawn if figure is not None]


def _list_arrays(provenance: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Model, records, shape, type and hash of every array that was audited."""
    arrays = provenance.get("arrays")
    if not isinstance(arrays, Mapping):
        return []
    return [
        (_name_model(model), str(side).replace("_", "-"), *_describe_array(found))
        for model, sides in arrays.items()
        for side, found in sides.items()
    ]


def _name_model(name: Any) -> str:
    return _MODEL_WORDS.get(str(name), str(name))


def _describe_array(found: Mapping[str, Any]) -> tuple[str, str, str]:
    shape = " \u00d7 ".join(display.format_count(length) for length in found.get("shape", ()))
    return shape, str(found.get("dtype", "")), str(found.get("sha256", ""))


def _list_provenance(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [] if key == "arrays" else _list_provenance(value, f"{prefix}{key} \u203a ")
        else:
            rows.append((f"{prefix}{key}", str(value)))
    return rows


def _tabulate_outputs(outputs: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    names = list(dict.fromkeys(name for numbers in outputs.values() for name in numbers))
    rows = [
        (_name_model(model), [display.format_number(numbers.get(name), 3) for name in names])
        for model, numbers in outputs.items()
    ]
    return [name.replace("_", " ") for name in names], rows
