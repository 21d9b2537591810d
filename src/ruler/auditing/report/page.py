"""Report to report.html: one file without network, raw data or outside fonts."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Report
from ruler.auditing.report import display, figures, words
from ruler.auditing.report.figures.records import DistributionFigure
from ruler.auditing.report.figures.scale import ORDER
from ruler.auditing.report.tables import PLAIN, show_table
from ruler.core import __version__
from ruler.core.text import show_text

_MOST_PERSONS = 20
_OWN = "ruler.auditing.report"
_SETTINGS = {"True": "yes", "False": "no", "None": display.DASH}
_SOFTWARE = ("ruler", "python", "numpy", "scipy", "torch", "transformers")
_MODELS = {"unlearned": "Unlearned model", "oracle": "Oracle", "original": "Original", "reference": "Reference"}

Array = tuple[tuple[str, ...], Mapping[str, Any]]
"""Where an array of the provenance stands, e.g. ("oracle", "2", "forget", "layer 3"), and what is known of it."""


@dataclass(frozen=True)
class Person:
    """One request on the first screen: what remains, its verdict, and what would settle it."""

    name: str
    n_records: int
    remaining: str
    verdict: str
    need: str


def render_page(report: Report, *, fingerprint: str = "") -> str:
    """The text of report.html, whose content policy lets nothing out and runs only the script that it carries.

    Args:
        report: What to show.
        fingerprint: Of the manifest that it is saved with; empty if it is not.
    """
    settings = {name: _SETTINGS.get(str(value), value) for name, value in vars(report.settings).items()}
    arrays = list(_walk_arrays(report.provenance.get("arrays")))
    return render_template(
        "report.html.j2",
        report=report,
        fingerprint=fingerprint,
        distributions=_draw_distributions(report),
        persons=list_persons(report),
        tables={"records": show_table(report.records, "record"), "groups": show_table(report.groups, "group")},
        settings=settings | {"limit_chosen_by": words.name_chooser(report.settings)},
        identity=identify(report),
        reading=_list_reading(report),
        provenance=_list_provenance(report.provenance),
        arrays=arrays,
        sizes=describe_sizes(report),
        answer_names=list(dict.fromkeys(name for numbers in report.answers.values() for name in numbers)),
        confidence=words.format_percent(report.settings.confidence),
        level=f"{100 * (1 - report.settings.alpha):g}%",
    )


def list_persons(report: Report) -> list[Person]:
    """One row per group, the gravest first, as many as the first screen holds; none without groups."""
    if report.groups is None:
        return []
    ordered = report.groups.sort_values("q_value", kind="stable").to_dict(orient="records")
    rows = sorted(({str(name): value for name, value in row.items()} for row in ordered), key=_find_gravity)
    return [
        Person(
            str(row["group"]),
            int(row["n_records"]),
            words.format_span(row["remaining"], row["low"], row["high"]).replace("-", "\u2212"),
            row["verdict"],
            words.explain_group(row, report),
        )
        for row in rows[:_MOST_PERSONS]
    ]


def _find_gravity(row: Mapping[str, Any]) -> int:
    return ORDER.index(row["verdict"])


def render_template(name: str, *, package: str = _OWN, more_style: str = "", **values: Any) -> str:
    """A page from a package's template and these values, with the style and the script of all reports and their hashes.

    Args:
        package: Whose ``templates`` hold it, which may use those of reports.
        more_style: What comes after the style of reports.
    """
    folder = files(_OWN).joinpath("templates")
    style, script = (folder.joinpath(file).read_text(encoding="utf-8") for file in ("style.css", "tables.js"))
    for kind, text in (("style", style + more_style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        values |= {kind: Markup(text), f"{kind}_hash": Markup(f"sha256-{digest}")}
    return _environment(package).get_template(name).render(**values).rstrip() + "\n"


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_OWN)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: show_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        words=words,
        figures=figures,
        contrasts=CONTRASTS,
        models=_MODELS,
        plain=PLAIN,
        version=__version__,
    )
    environment.filters.update(
        number=display.format_number,
        p=display.format_p,
        interval=display.format_interval,
        estimate=display.format_estimate,
        count="{:,}".format,
        records=display.count_records,
        contrast=words.name_contrast,
        contrast_title=words.title_contrast,
        metric_p=words.show_p,
        metric_verdict=words.name_verdict,
        remaining=lambda one: words.format_remaining(one).replace("-", "\u2212"),
    )
    environment.tests["finite"] = lambda value: value is not None and bool(np.isfinite(value).all())
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def describe_sizes(report: Report) -> dict[str, str]:
    """How many records there are on each side, a dash where that is not known."""
    sizes = {"forget": f"{len(report.records):,}", "held_out": display.DASH, "retain": display.DASH}
    for path, found in _walk_arrays(report.provenance.get("arrays")):
        shape = found.get("shape")
        if path[0] == "unlearned" and path[1] in sizes and isinstance(shape, list | tuple) and shape:
            sizes[path[1]] = f"{int(shape[0]):,}"
    return sizes


def identify(report: Report) -> list[tuple[str, str]]:
    """Which model was audited, where and when, as far as known: for the first screen."""
    known = report.provenance
    models, weights, places = (_get(known.get(key), "unlearned") for key in ("models", "weights", "files"))
    arrays = _walk_arrays(known.get("arrays"))
    rows: Mapping[str, Any] = next((array for path, array in arrays if path[:2] == ("unlearned", "forget")), {})
    layers = words.describe_layers(report)
    when = str(known.get("created_at", ""))
    when = when[:16].replace("T", " ") + (" UTC" if when.endswith("+00:00") else "")
    name = report.declared.get("model") or models.rpartition(".")[2] or places
    what, digest = ("Weights", weights) if weights else ("Forget embeddings", str(rows.get("sha256", "")))
    found = [("Model", name), (f"{what}, SHA-256", digest[:12]), ("Read at", layers), ("Audited", when)]
    return [(label, value) for label, value in found if value]


def _get(values: Any, key: str) -> str:
    found = values.get(key) if isinstance(values, Mapping) else None
    return str(found or "")


def _list_reading(report: Report) -> list[tuple[str, str]]:
    """Where and how the representations were read: layers, pooling, weights, files, versions, as far as known."""
    known = report.provenance
    rows = []
    if layers := words.find_layers(report):
        rows.append(("Layer" if len(layers) == 1 else f"Layers ({len(layers)})", ", ".join(layers)))
    if known.get("pooling"):
        rows.append(("Pooling", str(known["pooling"])))
    for key, title in (("weights", "Weights, SHA-256"), ("files", "File")):
        entries = known.get(key)
        if isinstance(entries, Mapping):
            rows += [(f"{title}: {_MODELS.get(name, name)}", str(value)) for name, value in entries.items()]
    versions = [f"{name} {known[name]}" for name in _SOFTWARE if known.get(name)]
    return [*rows, ("Software", ", ".join(versions))] if versions else rows


def _draw_distributions(report: Report) -> list[DistributionFigure]:
    """The scores of every contrast, but once where a descriptive one shares them with one that decides."""
    scores = report.distributions.scores
    deciding = {contrast.score for name, contrast in CONTRASTS.items() if contrast.decides and name in scores}
    titles = {
        name: contrast.score_title or words.title_contrast(name)
        for name, contrast in CONTRASTS.items()
        if name in scores and (contrast.decides or contrast.score not in deciding)
    }
    titles |= {name: name for name in scores if name not in CONTRASTS}
    drawn = [figures.draw_distributions(f"scores-{name}", title, scores[name]) for name, title in titles.items()]
    return [figure for figure in drawn if figure is not None]


def _walk_arrays(arrays: Any, path: tuple[str, ...] = ()) -> Iterator[Array]:
    if isinstance(arrays, Mapping) and path and "sha256" in arrays:
        yield path, arrays
    elif isinstance(arrays, Mapping | list):
        entries = arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays, start=1)
        for name, entry in entries:
            yield from _walk_arrays(entry, (*path, str(name)))


def _list_provenance(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """What the page does not show elsewhere, flat."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        if not prefix and key in ("arrays", "layers", "pooling", "weights", "files", "request", *_SOFTWARE):
            continue
        if isinstance(value, Mapping):
            rows += _list_provenance(value, f"{prefix}{key} \u203a ")
        else:
            rows.append((f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows
