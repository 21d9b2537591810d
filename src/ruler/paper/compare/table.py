"""Rows of a comparison -> one table of runs, one of methods with intervals, and why numbers are missing."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ruler.core.optional import load_optional
from ruler.experiment.compare.settings import GRID, CompareSettings
from ruler.experiment.grid import Cell
from ruler.experiment.rows import FAMILIES
from ruler.metrics.peers import PEERS
from ruler.paper.results import title_of
from ruler.paper.typeset import end_row, escape_latex, print_csv
from ruler.stats.intervals import crossed_interval

if TYPE_CHECKING:
    import pandas as pd

FAILED = "failed"
REPORTS = "reports"


class Measure(NamedTuple):
    """A column of numbers: its title and what it answers."""

    title: str
    meaning: str


OWN: dict[str, Measure] = {
    "remaining": Measure(
        "Remaining", "How far what the model says or what its layers hold is from 0, never trained on; 1 is trained on."
    ),
    "outputs_remaining": Measure(
        "Remaining, says", "What remains in what the model says: 0 as never trained on, 1 as trained on."
    ),
    "layers_remaining": Measure(
        "Remaining, holds", "What remains in what its layers hold: 0 as never trained on, 1 as trained on."
    ),
    "held_out_accuracy": Measure(
        "Held-out accuracy", "Share of right answers, or of right tokens, on held-out records."
    ),
    "retain_accuracy": Measure("Retain accuracy", "Share of right answers on retain records."),
    "forget_accuracy": Measure("Forget accuracy", "Share of right answers on forget records."),
    "cost": Measure("Cost", "Time that the method takes, as a multiple of retraining's in the same run."),
    "m2_effect": Measure("M2 effect", "Chance that a forget record is nearer to the oracle's than a held-out one is."),
    "m4_effect": Measure("M4 effect", "Chance that a forget record is nearer to retain records than a held-out one."),
    "norm_effect": Measure("Norm effect", "Chance that a forget record's norm grew more, beside the oracle's."),
    "loss_effect": Measure("Loss effect", "Chance that a forget record's loss is lower than a held-out one's."),
    "m1": Measure("M1", "Mean cosine similarity of forget records to the oracle's."),
    "m2": Measure("M2", "M1 less that of retain records."),
    "m3": Measure("M3", "How far unlearning moved forget records towards the oracle."),
    "m4": Measure("M4", "Mean percentile rank of forget records among retain records."),
    "mia": Measure("MIA", "Balanced accuracy of telling forget from held-out records by a threshold on the loss."),
    "damage_similarity": Measure("Kept similarity", "Similarity of retain records to the oracle's, as a damage check."),
    "damage_skill": Measure("Kept skill", "Skill on held-out records as a share of the oracle's."),
}
"""What is measured of every model besides peers' metrics."""

_SHORT = ("remaining", "held_out_accuracy", "retain_accuracy", "forget_accuracy", "cost")
_KEYS = ("method", "options", "seed", "forget_seed")
_UNMEASURED = "The audit could not measure it; its report, which --reports saves, says why."
_UNSEEN = "In this run training leaves no trace of such records that can be seen, so nothing can be divided by it."
_ONE_RUN = "An interval needs at least two runs."


def describe(name: str) -> Measure:
    """Title and meaning of a column of numbers."""
    return OWN[name] if name in OWN else Measure(PEERS[name].title, PEERS[name].question)


def gather_runs(results: "pd.DataFrame", cells: Sequence[Cell], failures: Mapping[Cell, str]) -> "pd.DataFrame":
    """One row per cell of a comparison, failed ones among them, in the order of the cells."""
    recipe = cells[0].recipe
    own = results[(results["engine"] == "compare") & (results["recipe"] == recipe)]
    known: dict[Any, Any] = {tuple(row[name] for name in _KEYS): row for row in own.to_dict("records")}
    rows = []
    for cell in cells:
        row = known.get(tuple(getattr(cell, name) for name in _KEYS))
        rows.append(_read_run(cell, row, failures.get(cell, "It was not run.")))
    pandas = load_optional("pandas", "comparing methods")
    found: pd.DataFrame = pandas.DataFrame(rows)
    return found


def _read_run(cell: Cell, row: Mapping[str, Any] | None, error: str) -> dict[str, Any]:
    options = json.loads(cell.options) if cell.options else {}
    settings = _show_settings({name: value for name, value in options.items() if name != GRID})
    title = title_of(cell.method) + (f" ({settings})" if settings else "")
    recipe = json.loads(cell.recipe)
    head = {"method": cell.method, "title": title, "settings": settings, "seed": cell.seed, "draw": cell.forget_seed}
    head |= {"report": f"{REPORTS}/{cell.name}", "dataset": cell.dataset, "model": cell.architecture}
    head |= {"forget": str(recipe["data"]["forget"]), "n_forget": math.nan, "verdict": FAILED, "seen": ""}
    values, texts = dict.fromkeys((*OWN, *recipe["metrics"]), math.nan), {"layers": "", "choice": ""}
    if row is None:
        return {**head, **values, **texts, "reasons": json.dumps({"verdict": error})}
    head |= {"n_forget": row["n_forget"], "verdict": row["verdict"], "seen": row["seen"] or ""}
    peers, reasons = json.loads(row["peers"]), json.loads(row["reasons"])
    is_original = cell.method == "original"
    values |= {name: row[name] for name in OWN if name in row}
    found = {f"{name}_remaining": _read_remaining(row, name) for name in FAMILIES}
    values |= {**found, "held_out_accuracy": row["test_accuracy"]}
    values["remaining"] = math.nan if any(map(math.isnan, found.values())) else max(map(abs, found.values()))
    reasons |= {name: _UNSEEN for name in ("remaining", *found) if math.isnan(values[name])}
    values["cost"] = 0.0 if is_original else row["unlearning_s"] / row["retraining_s"]
    values |= {name: peers[name] for name in recipe["metrics"] if peers[name] is not None}
    if is_original:
        reasons["m3"] = "The original has not moved."
    reasons |= {name: _UNMEASURED for name, value in values.items() if math.isnan(value) and name not in reasons}
    texts |= {name: row[name] for name in texts if isinstance(row[name], str)}
    return {**head, **values, **texts, "reasons": json.dumps(reasons)}


def _read_remaining(row: Mapping[str, Any], family: str) -> float:
    """What remains; NaN where its interval has no end."""
    value, low, high = (row[f"{family}_remaining{end}"] for end in ("", "_low", "_high"))
    return float(value) if math.isfinite(low) and math.isfinite(high) else math.nan


def _show_settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def list_choices(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Every candidate of every grid: title, settings, seed, draw, its score in the rehearsal, and which was chosen."""
    pandas = load_optional("pandas", "comparing methods")
    rows = []
    for run in runs[runs["choice"] != ""].to_dict("records"):
        found = json.loads(run["choice"])
        for place, one in enumerate(found["candidates"]):
            head = {"title": run["title"], "seed": run["seed"], "draw": run["draw"]}
            score = math.nan if one["score"] is None else one["score"]
            tail = {"score": score, "is_chosen": place == found["chosen"], "reason": one["reason"]}
            rows.append({**head, "settings": _show_settings(one["settings"]), **tail})
    columns = ["title", "seed", "draw", "settings", "score", "is_chosen", "reason"]
    choices: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
    return choices


def summarise(runs: "pd.DataFrame", metrics: Sequence[str]) -> "pd.DataFrame":
    """One row per method and its settings: verdicts counted, numbers as means with intervals over seeds and draws."""
    pandas = load_optional("pandas", "comparing methods")
    rows = []
    for (method, title, settings), part in runs.groupby(["method", "title", "settings"], sort=False):
        counts = part["verdict"].value_counts()
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items(), key=lambda one: -one[1]))
        row: dict[str, Any] = {"method": method, "title": title, "settings": settings, "runs": len(part)}
        row["verdicts"] = verdicts
        for name in (*OWN, *metrics):
            found = crossed_interval(part[name].to_numpy(float), part["seed"], part["draw"])
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        rows.append(row)
    table: pd.DataFrame = pandas.DataFrame(rows)
    return table


def list_missing(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Why numbers have no value: method, metric, reason, and in how many runs."""
    pandas = load_optional("pandas", "comparing methods")
    counted = Counter(
        (run["title"], name, reason)
        for run in runs.to_dict("records")
        for name, reason in json.loads(run["reasons"]).items()
    )
    for title, n_runs in runs["title"].value_counts(sort=False).items():
        if n_runs == 1:
            counted[str(title), "intervals", _ONE_RUN] = 1
    rows = [[*key, n] for key, n in counted.items()]
    found: pd.DataFrame = pandas.DataFrame(rows, columns=["title", "metric", "reason", "runs"])
    return found


def to_csv(table: "pd.DataFrame", missing: "pd.DataFrame") -> str:
    """The table with all digits, and per row why numbers are missing."""
    notes = missing["metric"] + " (" + missing["runs"].astype(str) + " runs): " + missing["reason"]
    reasons = notes.groupby(missing["title"], sort=False).agg("; ".join)
    return print_csv(table.assign(missing=table["title"].map(reasons)))


def to_latex(table: "pd.DataFrame", settings: CompareSettings) -> str:
    """The verdicts, what remains, what is kept and the cost as LaTeX, for the package booktabs."""
    lines = [
        rf"% {settings.seeds} seeds, {settings.draws} forget sets; mean and half the width of the 95\% interval",
        rf"\begin{{tabular}}{{ll{'r' * len(_SHORT)}}}",
        r"\toprule",
        end_row(map(escape_latex, ["Method", "Verdicts", *(OWN[name].title for name in _SHORT)])),
        r"\midrule",
    ]
    for row in table.to_dict("records"):
        numbers = (_set_number(row[name], row[f"{name}_high"]) for name in _SHORT)
        lines.append(end_row([escape_latex(row["title"]), escape_latex(row["verdicts"]), *numbers]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _set_number(value: float, high: float) -> str:
    if math.isnan(value):
        return "n/a"
    return f"${value:.3f}$" if math.isnan(high) else rf"${value:.3f} \pm {high - value:.3f}$"
