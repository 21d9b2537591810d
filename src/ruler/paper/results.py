"""The rows of finished cells: checked, named and ordered as in the paper, picked by study, gathered by condition."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.data import DATASETS, list_datasets
from ruler.experiment.rows import CELL as _CELL
from ruler.experiment.rows import COLUMNS, DECIDING, DEFAULTS, LATER_COLUMNS, SCORES
from ruler.experiment.settings import ALL_METHODS, APPROXIMATE_METHODS, LANGUAGE_METHODS
from ruler.experiment.studies import STUDIES
from ruler.models import MODELS
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    import pandas as pd

PAPER_DATASETS = list_datasets("primary")
PAPER_MODELS = (*ALL_METHODS, "oracle", "original")
DIAGNOSTIC_STUDIES = ("large-tabular", "images", "faces", "clinical")

_ARCHITECTURES = {**{key: entry.title for key, entry in MODELS.items()}, "bert_mlm": "BERT, masked words"}
_ARCHITECTURES |= {"causal_lm": "Causal language model"}
_FORGET_CHOICES = {"random": "random", "most_frequent": "most frequent", "single": "one alone", "pair": "two alone"}
_TITLES = {"oracle": "Oracle", "original": "Original", **_ARCHITECTURES, **_FORGET_CHOICES}
_ORDERS: dict[str, tuple[str, ...]] = {
    "dataset": tuple(key for study in ("primary", *DIAGNOSTIC_STUDIES) for key in list_datasets(study)),
    "architecture": tuple(_ARCHITECTURES),
    "forget_choice": tuple(_FORGET_CHOICES),
    "method": (*PAPER_MODELS, *(name for name in LANGUAGE_METHODS if name not in PAPER_MODELS)),
    "other_method": PAPER_MODELS,
    "study": tuple(STUDIES),
}

CELL = (*_CELL, "architecture", "forget_choice")
REQUIRED = (*_CELL, *SCORES, "engine")
_DECIMALS = 12  # keys are joined by value: 0.1 must be 0.1 however it was computed

N_SEEDS = 5
"""Seeds of every diagnostic study, the paper's and ours."""
LEAKING_SET = "mtsamples_rows"
CONDITION = ("dataset", "architecture", "forget_fraction", "method")


def title_of(key: str, *, is_short: bool = False) -> str:
    """Name in the paper of a dataset, method or model, abbreviated for an axis if asked; others keep their key.

    Example:
        >>> title_of("neggrad_plus", is_short=True), title_of("diabetes130"), title_of("my_set")
        ('NG+', 'Diabetes 130-US', 'my_set')
    """
    if key in METHODS:
        return METHODS[key].short if is_short else METHODS[key].title
    return DATASETS[key].title if key in DATASETS else _TITLES.get(key, key)


def rank_of(kind: str, value: Any) -> tuple[int, Any]:
    """Sort key that puts the values of a key column in the paper's order, and unknown values after them.

    Example:
        >>> sorted(["scrub", "mine", "gradient_ascent"], key=lambda name: rank_of("method", name))
        ['gradient_ascent', 'scrub', 'mine']
    """
    order = _ORDERS.get(kind, ())
    return (order.index(value), "") if value in order else (len(order), value)


def check_results(results: "pd.DataFrame") -> "pd.DataFrame":
    """Results with every column that the tables read, numbers as floats, each cell once; absent ones get defaults.

    Raises:
        InputError: A column is missing, or a cell is there twice.
    """
    missing = [column for column in REQUIRED if column not in results.columns]
    if missing:
        raise InputError(
            f"results must have the columns {', '.join(REQUIRED)}; got none named {', '.join(missing)}. "
            "Read them from the store of a run."
        )
    checked = results.reindex(columns=[*results, *(name for name in LATER_COLUMNS if name not in results)])
    numbers = [name for name in checked if not COLUMNS.get(str(name), "TEXT").startswith("TEXT")]
    texts = checked.columns.difference(
        numbers, sort=False
    )  # rows are picked out far faster than of pandas' own strings
    checked = checked.astype(dict.fromkeys(numbers, float) | dict.fromkeys(texts, object)).fillna(DEFAULTS)
    keys = [column for column in CELL if column in numbers]
    checked[keys] = checked[keys].round(_DECIMALS)
    n_repeats = int(checked.duplicated(list(CELL)).sum())
    if n_repeats:
        raise InputError(
            f"results must hold each cell once; got {n_repeats} of {len(checked)} rows twice. "
            "Give the results of one engine and one store."
        )
    return checked


def rows_of(results: "pd.DataFrame", study: str, methods: tuple[str, ...] = APPROXIMATE_METHODS) -> "pd.DataFrame":
    """The rows of one study and of these methods."""
    return results[(results["study"] == study) & results["method"].isin(methods)]


def main_rows(results: "pd.DataFrame", study: str) -> "pd.DataFrame":
    """Rows of a diagnostic study as the paper has it: forget sets drawn at random, documents by distinct text."""
    rows = rows_of(results, study, PAPER_MODELS)
    return rows[(rows["forget_choice"] == "random") & (rows["dataset"] != LEAKING_SET)]


def is_of_full_size(runs: "pd.DataFrame") -> bool:
    """Whether none of these runs is a smoke run, on few records."""
    return bool((runs["size"] == "full").all())


def split_by(rows: "pd.DataFrame", *keys: str) -> "Iterator[tuple[dict[str, Any], pd.DataFrame]]":
    """Each combination of the keys that occurs, in the paper's order, with its rows; all rows where there is no key."""
    if not keys:
        yield {}, rows
        return
    groups = [(dict(zip(keys, values, strict=True)), part) for values, part in rows.groupby(list(keys))]
    yield from sorted(groups, key=lambda group: [rank_of(key, value) for key, value in group[0].items()])


def average_seeds(rows: "pd.DataFrame", metric: str, *keys: str) -> "pd.Series[float]":
    """Mean of a metric over the runs of each combination of keys; runs without it do not count."""
    means: pd.Series[float] = rows[[*keys, metric]].dropna(subset=[metric]).groupby(list(keys))[metric].mean()
    return means


def gather_conditions(results: "pd.DataFrame", study: str) -> "pd.DataFrame":
    """What do the seeds of each condition of a diagnostic study give?

    Returns:
        One row per dataset, architecture, forget fraction and method, the original first: ``n`` runs, means of the
        scores under their names, ``m2_sd`` and ``m4_sd``, p-values as ``..._median``, ``..._min`` and ``..._max``,
        verdicts counted over seeds, as in ``residual 4, inconclusive 1``, and ``is_broken``: the retain accuracy is
        less than half of the original's.
    """
    rows = main_rows(results, study)
    groups = rows.groupby(list(CONDITION))
    effects = [f"{name}_effect" for name in DECIDING]
    means = [
        "m2",
        "m4",
        "m4_held_out",
        *effects,
        "damage_similarity",
        "damage_skill",
        "mia",
        "n_forget",
        "forget_accuracy",
        "retain_accuracy",
        "test_accuracy",
    ]
    found = groups[means].mean().assign(n=groups.size())
    for name in ("m2", "m4"):
        found[f"{name}_sd"] = groups[name].std(ddof=1)
    for name in DECIDING:
        summary = groups[f"{name}_p_value"].agg(["median", "min", "max"])
        found = found.join(summary.add_prefix(f"{name}_p_value_"))
    for name in ("verdict", *(f"{name}_verdict" for name in DECIDING)):
        words = rows[name].to_numpy(dtype=object)  # a Series per group would take far longer
        found[name] = [count_values(words[groups.indices[place]]) for place in found.index]
    originals = (found["retain_accuracy"].get((*place[:-1], "original"), math.nan) for place in found.index)
    found["is_broken"] = found["retain_accuracy"].to_numpy() < [accuracy / 2 for accuracy in originals]
    keys = found.index.to_frame().to_dict("records")
    order = sorted(range(len(keys)), key=lambda place: rank_condition(keys[place]))
    ordered: pd.DataFrame = found.iloc[order].reset_index()
    return ordered


def rank_condition(keys: Mapping[Any, Any]) -> list[Any]:
    """Sort key of a condition: the paper's order, but the original before all other methods."""
    return [(value != "original", rank_of(name, value)) for name, value in keys.items()]


def count_values(values: Iterable[Any]) -> str:
    """How often each value occurs, most frequent first, as in ``residual 4, inconclusive 1``; empty where none does."""
    counts = Counter(value for value in values if isinstance(value, str) and value)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{value} {count}" for value, count in ordered)
