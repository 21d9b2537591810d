"""The primary study by both engines -> docs/bench/engines.csv and the tables of docs/reproduction.md.

`python -m benchmarks engines PROTOCOL ENSEMBLE --csv docs/bench/engines.csv --page docs/reproduction.md` compares the
means over seeds of every condition, and counts which numbers of the paper each engine reproduces.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from scipy.stats import ttest_1samp

from benchmarks.meta_tables import put_between
from ruler.core.errors import InputError
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.experiment.store import load_results
from ruler.paper.agreement import compare_numbers
from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers
from ruler.paper.typeset import escape_markdown
from ruler.stats.intervals import difference_interval, mean_interval
from ruler.stats.p_values import holm

STUDY = "primary"
METRICS = {
    **{name: name.upper() for name in ("m1", "m2", "m3", "m4")},
    "mia": "membership inference, accuracy",
    **{f"{side}_accuracy": f"{side} accuracy" for side in ("forget", "retain", "test")},
}
CONDITION = ["dataset", "method", "forget_fraction"]


def read_rows(source: Path, engine: str) -> pd.DataFrame:
    """The rows of the study by this engine, from a results file, its folder or a .parquet of rows."""
    table = pd.read_parquet(source) if source.suffix == ".parquet" else load_results(source)
    rows = table[(table["study"] == STUDY) & (table["engine"] == engine)]
    if rows.empty:
        raise InputError(f"{source} must hold rows of the study {STUDY} by the engine {engine}; got none.")
    return rows


def compare_conditions(protocol: pd.DataFrame, ensemble: pd.DataFrame) -> pd.DataFrame:
    """A row per metric and condition: means and SDs over seeds, and Welch's 95% interval of ensemble minus protocol."""
    rows = []
    for metric in METRICS:
        groups = [dict(iter(part.dropna(subset=metric).groupby(CONDITION)[metric])) for part in (protocol, ensemble)]
        if groups[0].keys() != groups[1].keys():
            raise InputError(f"both engines must have the same conditions of {metric}; got others. Finish both runs.")
        for condition, first in groups[0].items():
            second = groups[1][condition]
            found = difference_interval(second, first)
            rows.append(
                {"metric": metric, **dict(zip(CONDITION, condition, strict=True)), "n": found.n}
                | {"protocol": first.mean(), "protocol_sd": first.std()}
                | {"ensemble": second.mean(), "ensemble_sd": second.std(), "low": found.low, "high": found.high}
            )
    return pd.DataFrame(rows)


def describe(table: pd.DataFrame) -> Iterator[str]:
    """A line per metric: how often intervals hold 0, how large the differences are, and a test over the datasets."""
    parts = {metric: table[table["metric"] == metric] for metric in METRICS}
    gaps = {metric: part["ensemble"] - part["protocol"] for metric, part in parts.items()}
    steps = {metric: gap.groupby(parts[metric]["dataset"]).mean() for metric, gap in gaps.items()}
    p_values = [float(ttest_1samp(step, 0.0).pvalue) for step in steps.values()]
    rows = []
    for (metric, part), p_value, corrected in zip(parts.items(), p_values, holm(p_values), strict=True):
        mean, holds = mean_interval(steps[metric]), (part["low"] <= 0) & (part["high"] >= 0)
        rows.append(
            [
                *(METRICS[metric], str(len(part)), f"{holds.mean():.1%}"),
                f"{mean.value:+.5f} ({mean.low:+.5f} to {mean.high:+.5f})",
                *(f"{p_value:.3f}", f"{corrected:.3f}"),
                f"{gaps[metric].abs().max():.4f}",
                f"{part['protocol_sd'].median():.4f}",
            ]
        )
    head = ["metric", "conditions", "intervals that hold 0", "mean difference", "p", "p, Holm's", "largest difference"]
    yield from markdown_table([*head, "SD over seeds"], rows, marks=["---", *["--:"] * len(head)])


def judge(protocol: pd.DataFrame, ensemble: pd.DataFrame) -> Iterator[str]:
    """How many of the paper's numbers either engine reproduces, and on which the two part."""
    found, other = (compare_numbers(compute_numbers(check_results(part))) for part in (protocol, ensemble))
    is_judged = found["agrees"].notna() & other["agrees"].notna()
    found, other = found[is_judged], other[is_judged]
    n_neither = int((~found["agrees"] & ~other["agrees"]).sum())
    yield (
        f"Of the {len(found)} numbers that the paper prints of this study, {found['agrees'].sum()} agree by the "
        f"protocol and {other['agrees'].sum()} by the ensemble; {n_neither} differ by both. Those on which the engines "
        "part:"
    )
    yield ""
    rows = []
    for number, theirs in zip(found.to_dict("records"), other.to_dict("records"), strict=True):
        if number["agrees"] != theirs["agrees"]:
            place = "Text" if number["table"] == "text" else f"Table {number['table']}"
            ours = [f"{one['ours']:.3g}{'' if one['agrees'] else ' (differs)'}" for one in (number, theirs)]
            names = (escape_markdown(str(number[name])) for name in ("row", "column"))
            rows.append([place, *names, f"{number['paper']:.3g}", *ours, number["tolerance"]])
    head = ["where", "row", "number", "paper", "protocol", "ensemble", "tolerance"]
    yield from markdown_table(head, rows, marks=["---"] * 3 + ["--:"] * 3 + ["---"])


def main() -> None:
    """Compare the engines; write the table of conditions and the page."""
    parser = argparse.ArgumentParser(prog="benchmarks engines")
    parser.add_argument("protocol", type=Path, help="results file, folder or .parquet with the study by the protocol")
    parser.add_argument("ensemble", type=Path, help="the same by the ensemble")
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    options = parser.parse_args()
    protocol, ensemble = (read_rows(getattr(options, name), name) for name in ("protocol", "ensemble"))
    table = compare_conditions(protocol, ensemble)
    write_atomically(options.csv, table.to_csv(index=False, float_format="%.5g"))
    put_between(options.page, "engines", [*describe(pd.read_csv(options.csv)), "", *judge(protocol, ensemble)])
