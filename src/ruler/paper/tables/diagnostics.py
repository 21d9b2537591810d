"""Tables 12, 13 and 14 and the numbers of section 5.5: large tables, images, faces and clinical text."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ruler.data import DATASETS, TabularSet
from ruler.paper.diagnostics.conditions import N_SEEDS, is_of_full_size, main_rows
from ruler.paper.names import title_of
from ruler.paper.published import load_table
from ruler.paper.results import split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "section 5.5"
_TRAIN_SHARE = 0.8
_ROW_KEYS = ("dataset", "architecture", "forget_fraction", "method")


def compute_table_12(results: "pd.DataFrame") -> list[Number]:
    """M4 on Covertype and Higgs by model and method, N = 5, the published number beside ours."""
    return _compute_conditions(results, "12", "large-tabular")


def compute_table_13(results: "pd.DataFrame") -> list[Number]:
    """M4 on three sets of images by model and method, N = 5, the published number beside ours."""
    return _compute_conditions(results, "13", "images")


def compute_table_14(results: "pd.DataFrame") -> list[Number]:
    """M4 on faces by forget fraction and method, N = 5, the published number beside ours."""
    return _compute_conditions(results, "14", "faces")


def compute_clinical(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 on clinical text by forget fraction and method, N = 5: Fig. 4 in numbers."""
    return _compute_conditions(results, "text", "clinical")


def compute_diagnostic_text(results: "pd.DataFrame") -> list[Number]:
    """The means and ranges that section 5.5 states."""
    found = []
    for study, metrics in (("large-tabular", ["m4"]), ("faces", ["m4"]), ("clinical", ["m2", "m4"])):
        for keys, runs in split_by(main_rows(results, study), *_ROW_KEYS):
            for metric in metrics:
                shared: dict[str, Any] = {"n_paper": N_SEEDS, "source": SOURCE, "study": study, **keys}
                found += _annotate(summarise(runs, metric, ["mean", "sd"], **shared), runs)
    images, faces = main_rows(results, "images"), main_rows(results, "faces")
    for keys, runs in split_by(images, "architecture", "forget_fraction", "method"):
        found += _find_range(runs, ["dataset"], n_means=3, study="images", **keys)
    kept = faces[faces["method"].isin(["gradient_ascent", "fine_tuning"])]
    for keys, runs in split_by(kept, "dataset", "architecture"):
        pair = {"method": "gradient_ascent", "other_method": "fine_tuning"}
        found += _find_range(runs, ["method", "forget_fraction"], n_means=6, study="faces", **pair, **keys)
    return found


def count_rows(runs: "pd.DataFrame") -> float:
    """Rows of the dataset that runs with random forget records had, to the nearest hundred.

    Example:
        >>> import pandas
        >>> count_rows(pandas.DataFrame({"n_forget": [2049.0], "forget_fraction": [0.05]}))
        51200.0
    """
    return float(round((runs["n_forget"] / runs["forget_fraction"]).median() / _TRAIN_SHARE, -2))


def tell_size(dataset: str, runs: "pd.DataFrame") -> str:
    """How these rows of a dataset differ in number from the paper's; empty where they do not."""
    entry = DATASETS.get(dataset)
    expected = entry.paper_rows if isinstance(entry, TabularSet) else 0
    if not expected or runs.empty or count_rows(runs) >= 0.98 * expected:
        return ""
    return f"about {count_rows(runs):,.0f} rows, not {expected:,}"


def name_set(dataset: str, runs: "pd.DataFrame") -> str:
    """The dataset's name, and beside it in how many rows these runs fall short of the paper's.

    Example:
        >>> import pandas
        >>> name_set("higgs", pandas.DataFrame({"n_forget": [2049.0], "forget_fraction": [0.05]}))
        'Higgs (about 51,200 rows, not 100,000)'
    """
    size = tell_size(dataset, runs)
    return f"{title_of(dataset)} ({size})" if size else title_of(dataset)


def _compute_conditions(results: "pd.DataFrame", table: str, study: str) -> list[Number]:
    quoted = _quote(table, study)
    found = []
    for keys, runs in split_by(main_rows(results, study), *_ROW_KEYS):
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": study, **keys}
        numbers = [
            *summarise(runs, "m4", ["mean", "sd"], **shared),
            *summarise(runs, "m2", ["mean", "sd"], **shared),
            *summarise(runs, "m4_held_out", ["mean"], **shared),
            *summarise(runs, "test_accuracy", ["mean"], **shared),
            *summarise(runs, "n_forget", ["mean"], **shared),
        ]
        found += _annotate(numbers, runs)
        place = tuple(keys[key] for key in _ROW_KEYS)
        for column, value in quoted.get(place, {}).items():
            found.append(Number(column=f"{column}_paper", value=value, n=len(runs), **shared))
    return found


def _quote(table: str, study: str) -> dict[tuple[Any, ...], dict[str, float]]:
    published = load_table(table)
    quoted: dict[tuple[Any, ...], dict[str, float]] = {}
    for record in published[published["study"] == study].to_dict("records"):
        quoted.setdefault(tuple(record[key] for key in _ROW_KEYS), {})[record["column"]] = record["paper"]
    return quoted


def _annotate(numbers: Sequence[Number], runs: "pd.DataFrame") -> list[Number]:
    size, is_full = tell_size(numbers[0].dataset, runs), is_of_full_size(runs)
    return [replace(number, note=number.note or size, is_comparable=is_full) for number in numbers]


def _find_range(runs: "pd.DataFrame", over: Sequence[str], *, n_means: int, **keys: Any) -> list[Number]:
    """Lowest and highest mean over these keys, each with the spread of its runs."""
    groups = runs.dropna(subset=["m4"]).groupby(list(over))["m4"].agg(["mean", "std", "size"])
    shared: dict[str, Any] = {"n_paper": N_SEEDS * n_means, "source": SOURCE, **keys}
    shared["is_comparable"] = is_of_full_size(runs)
    if groups.empty:
        return []
    found = []
    for name, place in (("lowest", groups["mean"].argmin()), ("highest", groups["mean"].argmax())):
        mean, sd, _ = groups.iloc[int(place)]
        n = int(groups["size"].sum())
        note = "one run has no spread" if math.isnan(sd) else ""
        found.append(Number(column=f"m4_{name}", value=float(mean), n=n, **shared))
        found.append(Number(column=f"m4_{name}_sd", value=float(sd), n=n, note=note, **shared))
    return found
