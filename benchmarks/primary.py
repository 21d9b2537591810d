"""What the paper's methods leave on its tables, in what the model says and in what its layers hold.

`python -m benchmarks primary run --out DIR` compares them on each table and forget fraction of the primary study, three
seeds each, as `ruler compare` does; the same command resumes. `python -m benchmarks primary keep DIR` gathers what is
finished in docs/bench, and `python -m benchmarks primary write` makes the table of docs/reproduction.md from there.
"""

import argparse
import math
from pathlib import Path

import pandas as pd

from benchmarks.comparison import run_bounded
from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically
from ruler.core.text import markdown_table
from ruler.experiment.compare.settings import CompareSettings
from ruler.experiment.run import RESULTS_FILE
from ruler.experiment.settings import ALL_METHODS
from ruler.experiment.store import load_results
from ruler.experiment.studies import choose_studies
from ruler.unlearning import METHODS

BENCH = Path(__file__).parents[1] / "docs" / "bench"
PAGE, FILE, MARK = BENCH.with_name("reproduction.md"), "primary_remaining.csv", "primary remaining"
FRACTIONS = (0.1, 0.05, 0.01)
_NUMBERS = [f"{family}_remaining{end}" for family in ("outputs", "layers") for end in ("", "_low", "_high")]
_COLUMNS = ["dataset", "forget_fraction", "method", "seed", "n_forget", "verdict", *_NUMBERS]


def list_comparisons() -> dict[str, CompareSettings]:
    """Every table and forget fraction of the primary study, by the name of its folder."""
    (study,) = choose_studies("primary")
    return {
        f"{name}-{share:g}": CompareSettings(name, forget=share, methods=list(ALL_METHODS), metrics=["cka"], seeds=3)
        for share in FRACTIONS
        for name in study.datasets
    }


def keep_results(folder: Path, bench: Path) -> int:
    """Write one row per finished run, and tell how many there are."""
    found = [load_results(one) for one in sorted(folder.glob(f"*/{RESULTS_FILE}"))]
    table = pd.concat(found)[_COLUMNS].sort_values(_COLUMNS[:4])
    write_atomically(bench / FILE, table.to_csv(index=False, float_format="%.4g"))
    return len(table)


def tabulate(table: pd.DataFrame) -> list[str]:
    """A row per table, fraction and method: the median over seeds of what remains, and the verdicts."""
    rows = []
    for key, runs in table.groupby(["dataset", "forget_fraction", "method"], sort=False):
        name, share, method = map(str, key)
        words = runs["verdict"].value_counts()
        rows.append(
            (
                name,
                f"{float(share):.0%} ({runs['n_forget'].median():.0f})",
                METHODS[method].title if method in METHODS else method.capitalize(),
                *(_say(runs[f"{family}_remaining"]) for family in ("outputs", "layers")),
                ", ".join(f"{word} {count}" for word, count in words.items()),
            )
        )
    head = ("table", "forgotten (records)", "method", "remains in what it says", "remains in its layers", "verdicts")
    return markdown_table(head, rows)


def _say(values: pd.Series) -> str:
    """The median in percent; a dash if some seed could not tell."""
    return "\u2013" if values.isna().any() or not values.map(math.isfinite).all() else f"{values.median():.0%}"


def main() -> None:
    """Measure, gather what was measured, or write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks primary")
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run what is not finished")
    run.add_argument("--out", type=Path, required=True, help="folder, in which each comparison has its own")
    run.add_argument("--seconds", type=float, default=math.inf, help="for each comparison")
    keep = verbs.add_parser("keep", help="gather finished runs")
    keep.add_argument("folder", type=Path)
    write = verbs.add_parser("write", help="make the table anew")
    for verb in (keep, write):
        verb.add_argument("--bench", type=Path, default=BENCH)
    write.add_argument("--page", type=Path, default=PAGE)
    asked = parser.parse_args()
    if asked.verb == "run":
        for name, wanted in list_comparisons().items():
            print(run_bounded(wanted, asked.out / name, device="cpu", seconds=asked.seconds, n_jobs=1), flush=True)
    elif asked.verb == "keep":
        print(f"{keep_results(asked.folder, asked.bench)} runs")
    else:
        put_between(asked.page, MARK, tabulate(pd.read_csv(asked.bench / FILE)))


if __name__ == "__main__":
    main()
