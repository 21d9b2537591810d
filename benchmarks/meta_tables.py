"""The meta-evaluation of metrics for classifiers: rows of models -> tables, by the plan in `benchmarks.meta`."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from benchmarks import measure
from ruler.core.arithmetic import TIE_SLACK
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.metrics.peers import PEERS
from ruler.metrics.peers.robustness import quantization_robustness, relearning_robustness

VERDICTS = ("erased", "inconclusive", "residual", "displaced", "damaged", "invalid")
_ALARM = {"erased": 0.0, "residual": 1.0}  # every other verdict lies between
_LEAST_UTILITY = 0.8


@dataclass(frozen=True)
class Judged:
    """A metric as the tables read it.

    Args:
        title: For a reader.
        sign: 1 if knowledge raises it, -1 if knowledge lowers it, 0 if it moves it away from the null.
        null: Its value for a model that never saw the forget records; NaN if none is known beforehand.
    """

    title: str
    sign: int
    null: float = math.nan

    def orient(self, values: "pd.Series[Any]") -> "pd.Series[Any]":
        """The values so that knowledge raises them."""
        return (values - self.null).abs() if self.sign == 0 else self.sign * values


OURS = {
    "verdict_1": Judged("**audit: verdict, one oracle**", 1),
    "verdict_5": Judged("**audit: verdict, five oracles**", 1),
    **{
        f"{name}_remaining_{n}": Judged(f"**audit: remaining in {title}, {words}**", 1, 0.0)
        for name, title in (("outputs", "what the model says"), ("layers", "what its layers hold"))
        for n, words in ((1, "one oracle"), (5, "five oracles"))
    },
    "audit_p_1": Judged("audit: smallest corrected p, one oracle", -1),
    "audit_p_5": Judged("audit: smallest corrected p, five oracles", -1),
    **{
        f"{name}_auc_{n}": Judged(f"audit: {title} contrast, {words}", sign, 0.5)
        for name, title, sign in (("loss", "loss", -1), ("m2", "M2", -1), ("m4", "M4", 1), ("norm", "norm", 0))
        for n, words in ((1, "one oracle"), (5, "five oracles"))
    },
    "m1": Judged("M1", -1),
    "m2": Judged("M2", -1, 0.0),
    "m3": Judged("M3", -1),
    "m4": Judged("M4", 1, 0.5),
    "forget_accuracy": Judged("forget accuracy", 1),
    "forget_loss": Judged("forget loss", -1),
    "accuracy_gap": Judged("forget less held-out accuracy", 1, 0.0),
    "mia": Judged("membership inference by the loss", 1, 0.5),
    "loss_attack": Judged("loss attack, AUC", 1, 0.5),
}


def list_judged(table: pd.DataFrame) -> dict[str, Judged]:
    """All metrics of the table, ours first."""
    peers = {name: Judged(PEERS[name].title, PEERS[name].knowledge, PEERS[name].null) for name in PEERS}
    return {name: one for name, one in (OURS | peers).items() if name in table.columns}


def keep_rows(folder: Path, path: Path) -> None:
    """Gather all rows of a run in one CSV file, four digits each."""
    rows = [row for one in sorted(folder.glob("*.jsonl")) for row in measure.read_rows(one)]
    facts = ("world", "draw", "part", "kind", "variant", "seed", "length", "verdict_1", "verdict_5")
    table = pd.DataFrame([{**{name: row.get(name) for name in facts}, **row["values"]} for row in rows])
    table = table.sort_values(["world", "draw", "part", "kind", "variant", "seed"], kind="stable")
    write_atomically(path, table.to_csv(index=False, float_format="%.4g"))


def read_rows(path: Path) -> pd.DataFrame:
    """The rows, with verdicts as numbers of alarm beside their words."""
    table = pd.read_csv(path, keep_default_na=True)
    for n in (1, 5):
        words = table[f"verdict_{n}"]
        table[f"words_{n}"] = words
        table[f"verdict_{n}"] = words.map(lambda word: _ALARM.get(word, 0.5)).where(words.notna())
    return table


def write_tables(source: Path, page: Path) -> None:
    """Put the tables of a CSV file into a page, between its marks."""
    table = read_rows(source)
    put_between(page, "metrics", tabulate_metrics(table))
    put_between(page, "verdicts", tabulate_verdicts(table))


def put_between(page: Path, mark: str, lines: list[str]) -> None:
    """Replace what stands in a page after ``<!-- measured: mark -->``, up to ``<!-- end -->``."""
    parts = re.split(rf"(<!-- measured: {mark} -->\n)(.*?)(<!-- end -->)", page.read_text(), flags=re.DOTALL)
    if len(parts) != 5:
        raise ValueError(f"{page} must have one mark 'measured: {mark}'; got {len(parts) // 4}.")
    write_atomically(page, "".join([*parts[:2], "\n".join(lines), "\n", *parts[3:]]))


def tabulate_verdicts(table: pd.DataFrame) -> list[str]:
    """How often each verdict is given, by what the model was trained on."""
    pool = table[table["part"] == "pool"]
    kinds = {
        "with": "retain and forget records",
        "faint, part": "a third of the forget records",
        "faint, short": "the same as the first, a quarter as long",
        "without": "retain records",
        "longer": "retain records, twice as long",
        "alike, neighbours": "retain records and the forget records' neighbours",
        "alike, relabelled": "forget records with other labels",
    }
    rows = []
    for key, words in kinds.items():
        kind, _, variant = key.partition(", ")
        chosen = pool[(pool["kind"] == kind) & (pool["variant"].fillna("") == variant)]
        for n in (1, 5):
            known = chosen[f"words_{n}"].dropna()
            if len(known):
                counts = [str(int((known == verdict).sum())) for verdict in VERDICTS]
                rows.append([words, str(n), str(len(known)), *counts])
    marks = ["---", *["--:"] * (len(VERDICTS) + 2)]
    return markdown_table(["trained on", "oracles", "models", *VERDICTS], rows, marks=marks)


def tabulate_metrics(table: pd.DataFrame) -> list[str]:
    """One row per metric, the most faithful first."""
    found = [(name, judge_metric(table, name, one)) for name, one in list_judged(table).items()]
    found.sort(key=lambda pair: -pair[1]["auc"] if not math.isnan(pair[1]["auc"]) else 1.0)
    columns = ("easy", "part", "short", "neighbours", "relabelled", "longer", "relearning", "more_training")
    rows = []
    for name, one in found:
        title = OURS[name].title if name in OURS else f"{PEERS[name].title}, `{name}`"
        interval = f"{show(one['auc'])} ({show(one['low'])}-{show(one['high'])})"
        wrong = "" if math.isnan(one["wrong_side"]) else f"{one['wrong_side']:.0%}"
        rows.append([title, interval, *(show(one[column]) for column in columns), wrong, f"{one['missing']:.0%}"])
    header = ["metric", "AUC (95%)", "easy", "a third", "short", "neighbours", "other labels"]
    header += ["twice as long", "R", "Q", "beyond its null", "missing"]
    return markdown_table(header, rows, marks=["---", *["--:"] * (len(header) - 1)])


def show(value: float) -> str:
    """Two digits, or nothing.

    Example:
        >>> show(0.125), show(math.nan)
        ('0.12', '')
    """
    return "" if math.isnan(value) else f"{value:.2f}"


def judge_metric(table: pd.DataFrame, name: str, one: Judged) -> dict[str, float]:
    """Every number of a metric; NaN where it cannot be computed.

    Returns:
        ``auc`` of all knowing models against all others with its interval; ``easy`` of the easy kinds alone; ``part``
        and ``short`` of a hard kind with the knowledge against "without"; ``neighbours`` and ``relabelled`` of "with"
        against a hard kind without it; ``longer`` of models trained longer against "without"; ``relearning`` (R) and
        ``more_training`` (Q); ``wrong_side``, share of "without" beyond the null; ``missing``, share without a number.
    """
    pool = table[table["part"] == "pool"].copy()
    pool["value"] = one.orient(pool[name])
    pool["label"] = np.where(pool["variant"].isna(), pool["kind"], pool["variant"])
    knowing, others = ("with", "part", "short"), ("without", "neighbours", "relabelled")
    by_draw = compare_by_draw(pool, knowing, others)
    found = dict(zip(("auc", "low", "high"), average_draws(by_draw), strict=True))
    pairs: dict[str, tuple[str, str]] = {
        "easy": ("with", "without"),
        "part": ("part", "without"),
        "short": ("short", "without"),
        "neighbours": ("with", "neighbours"),
        "relabelled": ("with", "relabelled"),
        "longer": ("longer", "without"),
    }
    for key, (first, second) in pairs.items():
        found[key] = average_draws(compare_by_draw(pool, (first,), (second,)))[0]
    clean = pool.loc[pool["kind"] == "without", name].dropna()
    found["wrong_side"] = math.nan
    if not math.isnan(one.null) and one.sign and len(clean):
        found["wrong_side"] = float((one.sign * (clean - one.null) > 0).mean())
    asked = pool[pool["kind"] != "longer"] if name.endswith("_5") else pool
    found["missing"] = float(asked[name].isna().mean())
    return found | judge_robustness(table, pool, name, one)


def compare_by_draw(pool: pd.DataFrame, first: tuple[str, ...], second: tuple[str, ...]) -> "pd.Series[float]":
    """AUC of one set of models against another within each draw; draws without a number on a side are left out."""
    values, labels = pool["value"].to_numpy(dtype=np.float64), pool["label"].to_numpy()
    is_own, is_other = (np.isin(labels, names) & ~np.isnan(values) for names in (first, second))
    found: dict[Any, float] = {}
    for key, rows in pool.groupby(["world", "draw"]).indices.items():
        own, other = values[rows][is_own[rows]], values[rows][is_other[rows]]
        if len(own) and len(other):
            lead = own[:, None] - other
            found[key] = float(((lead > TIE_SLACK) + 0.5 * (np.abs(lead) <= TIE_SLACK)).mean())
    index = pd.MultiIndex.from_tuples(list(found), names=["world", "draw"]) if found else None
    return pd.Series(found, index=index, dtype=float)


def average_draws(by_draw: "pd.Series[float]") -> tuple[float, float, float]:
    """Mean over worlds of the mean over draws, and its 95% interval: draws are random, worlds are not.

    The variance among draws is pooled over the worlds.
    """
    if not len(by_draw):
        return math.nan, math.nan, math.nan
    worlds = by_draw.groupby(level="world")
    mean, sizes = float(worlds.mean().mean()), worlds.size()
    freedom = int((sizes - 1).sum())
    if not freedom:
        return mean, math.nan, math.nan
    apart = by_draw - worlds.transform("mean")
    error = math.sqrt(float((apart**2).sum()) / freedom * float((1 / sizes).sum())) / len(sizes)
    reach = float(student.ppf(0.975, freedom)) * error
    return mean, max(0.0, mean - reach), min(1.0, mean + reach)


def judge_robustness(table: pd.DataFrame, pool: pd.DataFrame, name: str, one: Judged) -> dict[str, float]:
    """Mean of R over methods and worlds, and of Q."""
    attacks = table[table["part"] == "attacks"].copy()
    attacks["value"] = one.orient(attacks[name])
    medians = pool.groupby(["world", "kind"])["value"].median()
    relearned, trained_on = [], []
    for world, part in attacks.groupby("world"):
        by_model = part.set_index(["kind", "variant"])
        skill, sizes = by_model["retain_accuracy"], part["kind"].value_counts()
        for method in sizes.index[sizes == sizes.get("oracle")]:  # whatever was not measured in all states is left out
            if method == "oracle" or skill[method, "plain"] < _LEAST_UTILITY * skill["oracle", "plain"]:
                continue
            value = by_model["value"]
            sides = [(model, state) for model in ("oracle", method) for state in ("plain", "relearned")]
            relearned.append(relearning_robustness(*(float(value[side]) for side in sides)))
            low, high = medians.get((world, "without"), math.nan), medians.get((world, "with"), math.nan)
            if high > low:
                gone = [1 - (float(value[method, state]) - low) / (high - low) for state in ("plain", "longer")]
                trained_on.append(quantization_robustness(*np.clip(gone, 0, 1).tolist()))
    means = {}
    for key, values in (("relearning", relearned), ("more_training", trained_on)):
        known = [value for value in values if not math.isnan(value)]
        means[key] = float(np.mean(known)) if known else math.nan
    return means
