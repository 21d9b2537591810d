"""Rows of the study `tofu` -> docs/bench/tofu.csv, the tables of docs/tofu.md and its figure of layers.

`python -m benchmarks tofu_table docs/bench/tofu.csv docs/tofu.md [RESULTS]...` adds the rows of results files to the
.csv, where given, and writes the page anew between its marks. A study that is not finished shows what there is.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.meta_tables import put_between
from ruler.core.files import write_atomically, writing_atomically
from ruler.core.text import markdown_table
from ruler.experiment.grid import list_cells
from ruler.experiment.store import load_results
from ruler.experiment.studies import STUDIES
from ruler.paper.figures import paper_style
from ruler.paper.figures.draw import draw_language_layers
from ruler.paper.results import rank_of, title_of
from ruler.paper.tables.diagnostics import KEPT_SHARE, choose_rates, list_layers

STUDY = STUDIES["tofu"]
VERDICTS = ("erased", "inconclusive", "residual", "displaced", "damaged", "invalid")
_CELL = ["study", "dataset", "forget_fraction", "seed", "method", "learning_rate"]
_CONTRASTS = [f"{name}_{kind}" for name in ("loss", "m2", "m4", "norm") for kind in ("effect", "p_value", "verdict")]
_SCORES = ["n_forget", "forget_accuracy", "retain_accuracy", "test_accuracy", "m1", "m2", "m3", "m4", "m4_held_out"]
_SCORES += ["m4_placebo_p", "damage_similarity", "damage_skill"]
COLUMNS = [*_CELL, *_SCORES, "verdict", *_CONTRASTS, "seen", "model", "layers", "peers"]
_REFERENCES = ("oracle", "original")
_SHOWN = {
    "loss_effect": ("loss AUC", ".3f"),
    "m2_effect": ("M2 AUC", ".3f"),
    "m4_effect": ("M4 AUC", ".3f"),
    "uds": ("UDS", ".3f"),
    "truth_ratio": ("truth ratio", ".3g"),
    "extraction_strength": ("extraction strength", ".3f"),
    "min_k": ("Min-K", ".2f"),
    "logit_lens": ("logit lens", ".2f"),
    "cka": ("CKA", ".3f"),
}


def keep_rows(sources: Sequence[Path], path: Path) -> None:
    """Add the rows of results files to the .csv, six digits each; a cell that is there already is replaced."""
    parts = [pd.read_csv(path)] if path.is_file() else []
    parts += [load_results(source).query("study == @STUDY.name").reindex(columns=COLUMNS) for source in sources]
    table = pd.concat([part.dropna(axis=1, how="all") for part in parts], ignore_index=True).reindex(columns=COLUMNS)
    for name in ("layers", "peers"):
        table[name] = table[name].map(_shorten, na_action="ignore")
    table = table.drop_duplicates(_CELL, keep="last").sort_values(_CELL)
    write_atomically(path, table.to_csv(index=False, float_format="%.6g"))


def _shorten(text: str) -> str:
    """Numbers by name as JSON, six digits each, without those that could not be computed."""
    return json.dumps({name: float(f"{value:.6g}") for name, value in json.loads(text).items() if value is not None})


def write_page(source: Path, page: Path) -> None:
    """Put the tables into the page, and draw the figure beside it."""
    table = pd.read_csv(source)
    drawn = list_layers(table.query("dataset == 'tofu'"))
    figure = page.with_name(f"{page.stem}_layers.svg")
    lines = list(describe(table))
    if len(drawn):
        _draw_layers(drawn, figure)
        lines += ["", f"![M2 in every layer, by method and forget fraction]({figure.name})"]
    put_between(page, "study", lines)


def _draw_layers(points: pd.DataFrame, path: Path) -> None:
    import matplotlib as mpl

    with paper_style(), mpl.rc_context({"svg.hashsalt": "tofu"}), writing_atomically(path) as stream:
        draw_language_layers(points).savefig(stream, format="svg", metadata={"Date": None})


def describe(table: pd.DataFrame) -> Iterator[str]:
    """Verdicts over all models, and a table per dataset and forget fraction."""
    yield from count_verdicts(table)
    for keys, part in split_parts(table):
        chosen = choose_rates(part)
        if (part["method"] == "original").any():
            yield ""
            yield f"{_name_part(*keys)}, {_count_cells(*keys, part)}:"
            yield ""
            yield from tabulate(chosen)


def split_parts(table: pd.DataFrame) -> Iterator[tuple[tuple[str, float], pd.DataFrame]]:
    """Rows of each dataset and fraction, in the order of the study."""
    for dataset in STUDY.datasets:
        for fraction in STUDY.forget_fractions:
            part = table[(table["dataset"] == dataset) & (table["forget_fraction"].round(6) == fraction)]
            if len(part):
                yield (dataset, fraction), part


def _name_part(dataset: str, fraction: float) -> str:
    return f"**{title_of(dataset)}, {100 * fraction:g}%**"


def _count_cells(dataset: str, fraction: float, part: pd.DataFrame) -> str:
    seeds = sorted(set(part["seed"].astype(int)))
    n_planned = sum(
        (cell.dataset, cell.forget_fraction) == (dataset, fraction) and cell.seed in seeds for cell in list_cells(STUDY)
    )
    words = "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    return f"{words}, {len(part)} of {n_planned} models measured"


def count_verdicts(table: pd.DataFrame) -> list[str]:
    """How often each verdict was given to unlearned models, at all rates."""
    rows = []
    for keys, part in split_parts(table):
        judged = part[part["learning_rate"].notna()]["verdict"].dropna()
        rows.append([_name_part(*keys), str(len(judged)), *(str(int((judged == one).sum())) for one in VERDICTS)])
    marks = ["---", *["--:"] * (len(VERDICTS) + 1)]
    return markdown_table(["forgotten", "unlearned models", *VERDICTS], rows, marks=marks)


def tabulate(chosen: pd.DataFrame) -> list[str]:
    """One line per model, methods at the rate that `choose_rates` chose; means over seeds."""
    least = KEPT_SHARE * chosen.loc[chosen["method"] == "original", "retain_accuracy"].mean()
    rows = []
    for method in sorted(set(chosen["method"]), key=lambda name: (name not in _REFERENCES, rank_of("method", name))):
        runs = chosen[chosen["method"] == method]
        rate, kept = runs["learning_rate"].mean(), runs["retain_accuracy"].mean()
        asked = "" if rate != rate else f"{rate:g}" if kept >= least else f"{rate:g}, none keeps {KEPT_SHARE:.0%}"
        verdicts = runs["verdict"].dropna().value_counts().sort_index()
        words = verdicts.index[0] if len(runs) == 1 and len(verdicts) else _join(verdicts)
        accuracies = (_show(runs[name].mean(), ".2f") for name in ("retain_accuracy", "forget_accuracy"))
        effects = (_show(runs[name].mean(), form) for name, (_, form) in _SHOWN.items())
        rows.append([title_of(method), asked, *accuracies, words, *effects])
    head = ["model", "rate", "right on retained", "right on forgotten", "verdict", *(one for one, _ in _SHOWN.values())]
    marks = ["---", "---", "--:", "--:", "---", *["--:"] * len(_SHOWN)]
    return markdown_table(head, rows, marks=marks)


def _join(verdicts: "pd.Series[int]") -> str:
    return ", ".join(f"{count} {name}" for name, count in verdicts.items())


def _show(value: float, form: str) -> str:
    return "" if value != value else format(value, form)


def main() -> None:
    """Keep rows and write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks tofu_table")
    parser.add_argument("csv", type=Path)
    parser.add_argument("page", type=Path)
    parser.add_argument("results", type=Path, nargs="*", help="results files of the study, or their folders")
    options = parser.parse_args()
    if options.results:
        keep_rows(options.results, options.csv)
    write_page(options.csv, options.page)
