"""Report to report.html: one file without network, raw data or outside fonts."""

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Report
from ruler.auditing.report import display, figures, wording
from ruler.auditing.report.record_tables import PLAIN, show_groups, show_records
from ruler.core.version import __version__

_SEVERITY_WORDS = {"fail": "Fails", "warn": "Warning", "note": "Note"}
_SETTINGS = {"True": "yes", "False": "no", "None": "\u2013"}
_SOFTWARE = ("ruler", "python", "numpy", "scipy", "torch", "transformers")
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
    deciding = wording.list_metrics(report, is_deciding=True)
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
            metrics=wording.list_metrics(report),
            words=CONTRASTS,
            needs=report.needs if report.verdict == "inconclusive" else [],
            margin_note=wording.explain_margin(report.settings),
            share_note=wording.explain_share_limit(report.settings),
            sensitivity=wording.describe_sensitivity(report),
            damage=wording.describe_damage(report),
            privacy=wording.explain_privacy(report),
            tests=wording.TESTS,
            declared=wording.DECLARED,
            reading=_describe_reading(report),
            layer_note=wording.describe_layers(report),
            gauge=figures.draw_gauge(report),
            effects=figures.draw_effects(report),
            distributions=_draw_distributions(report),
            ranks=figures.draw_ranks(report.distributions),
            layers=figures.draw_layers(report),
            roc=figures.draw_roc(report),
            plain=PLAIN,
            tables={"records": show_records(report), "groups": show_groups(report)},
            settings={
                **{name: _SETTINGS.get(str(value), value) for name, value in vars(report.settings).items()},
                "margin_chosen_by": wording.name_chooser("margin", report.settings),
            },
            n_needed=max((metric.n_needed or 0 for metric in deciding), default=0),
            is_hybrid=any(metric.test == "hybrid" for metric in deciding),
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
        contrast=wording.name_contrast,
        metric_verdict=wording.name_verdict,
        tone=wording.choose_tone,
        contrast_title=wording.title_contrast,
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
        remark = f"records no model was trained on ({wording.DECLARED})"
        facts.append(Fact("Held-out", _count_side(report, "held_out"), remark))
    else:
        facts.append(Fact("Held-out", "None", "so nothing could be tested"))
    facts.append(Fact("Retain", _count_side(report, "retain"), "records that the model may know"))
    if report.pairing is None:
        facts.append(Fact("Oracle", "Not given", "so the verdict cannot be erased"))
    else:
        how = "same seed" if report.pairing.is_paired else "other seed"
        turned = ", aligned first" if report.pairing.is_aligned else ""
        remark = f"retrained without the forget records, {how}{turned} ({wording.DECLARED})"
        n_oracles = report.provenance.get("n_oracles", 1)
        is_one = not isinstance(n_oracles, int) or n_oracles < 2
        facts.append(Fact("Oracle", "Given", remark) if is_one else Fact("Oracles", str(n_oracles), remark))
    if any(metric.original_effect is not None for metric in report.metrics.values()):
        facts.append(Fact("Original model", "Given", "what it showed tells old contrasts from new ones"))
    else:
        facts.append(Fact("Original model", "Not given", "residual and displaced are read from direction alone"))
    return facts


def _count_side(report: Report, side: str) -> str:
    for path, found in _walk_arrays(report.provenance.get("arrays")):
        shape = found.get("shape")
        if path[0] == "unlearned" and side in path and isinstance(shape, list | tuple) and shape:
            return display.format_count(int(shape[0]))
    return display.format_count(len(report.records)) if side == "forget" else "\u2013"  # provenance from elsewhere


def _describe_reading(report: Report) -> list[tuple[str, str]]:
    """Where and how the representations were read: layers, pooling, weights, files, versions, as far as known."""
    known = report.provenance
    rows = []
    if layers := wording.find_layers(report):
        rows.append(("Layer" if len(layers) == 1 else f"Layers ({len(layers)})", ", ".join(layers)))
    if known.get("pooling"):
        rows.append(("Pooling", str(known["pooling"])))
    for key, title in (("weights", "Weights, SHA-256"), ("files", "File")):
        entries = known.get(key)
        if isinstance(entries, Mapping):
            rows += [(f"{title}: {_name_model(name)}", str(value)) for name, value in entries.items()]
    versions = [f"{name} {known[name]}" for name in _SOFTWARE if known.get(name)]
    return [*rows, ("Software", ", ".join(versions))] if versions else rows


def _draw_distributions(report: Report) -> list[Any]:
    kept = dict(report.distributions.scores)
    if "m2" in kept:
        kept.pop("m1", None)  # the same similarities
    names = [name for name in CONTRASTS if name in kept] + [name for name in kept if name not in CONTRASTS]
    drawn = (
        figures.draw_distributions(f"scores-{name}", figures.SCORES.get(name, wording.title_contrast(name)), kept[name])
        for name in names
    )
    return [figure for figure in drawn if figure is not None]


def _walk_arrays(arrays: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Every array of the provenance with its place, e.g. ("oracle", "2", "forget", "layer 3")."""
    if isinstance(arrays, Mapping) and path and "sha256" in arrays:
        yield path, arrays
    elif isinstance(arrays, Mapping | list):
        entries = arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays, start=1)
        for name, entry in entries:
            yield from _walk_arrays(entry, (*path, str(name)))


def _list_arrays(provenance: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Model, records, shape, type and hash of every array that was audited."""
    return [
        (
            _name_model(path[0]),
            " \u203a ".join(path[1:]).replace("held_out", "held-out"),
            " \u00d7 ".join(str(length) for length in found.get("shape", ())),
            str(found.get("dtype", "")),
            str(found["sha256"]),
        )
        for path, found in _walk_arrays(provenance.get("arrays"))
    ]


def _name_model(name: Any) -> str:
    return _MODEL_WORDS.get(str(name), str(name))


def _list_provenance(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """What the page does not show elsewhere, flat."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if not prefix and key in ("arrays", "layers", "pooling", "weights", "files", *_SOFTWARE):
            continue
        if isinstance(value, Mapping):
            rows += _list_provenance(value, f"{prefix}{key} \u203a ")
        else:
            rows.append((f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows


def _tabulate_outputs(outputs: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    names = list(dict.fromkeys(name for numbers in outputs.values() for name in numbers))
    rows = [
        (_name_model(model), [display.format_number(numbers.get(name), 3) for name in names])
        for model, numbers in outputs.items()
    ]
    return [name.replace("_", " ") for name in names], rows
