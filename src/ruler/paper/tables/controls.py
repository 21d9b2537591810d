"""The controls that the paper lacks: faces that no model was trained on, other faces in their role, a leaking split."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ruler.paper.diagnostics.conditions import LEAKING_SET, N_SEEDS
from ruler.paper.intervals import Interval, combine_p_values, difference_interval, mean_interval
from ruler.paper.published import load_table
from ruler.paper.results import rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd

_PAIRED_BY = ["seed", "forget_seed"]
_BOTH = ("original", "oracle")


def compute_face_controls(results: "pd.DataFrame") -> list[Number]:
    """M4 of the forgotten identities before unlearning, beside the paper's and four controls, by fraction and choice.

    The oracle never saw them; held-out identities neither model saw; placebo sets are other identities of about the
    same number of images in the forget role, and the permutation test asks how extreme the forgotten ones are among
    them. p-values of seeds are combined by a rule that holds whatever their dependence.
    """
    rows = rows_of(results, "faces", _BOTH)
    found = []
    for keys, runs in split_by(rows, "dataset", "architecture", "forget_choice", "forget_fraction"):
        original, oracle = (runs[runs["method"] == method] for method in _BOTH)
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": "faces", **keys}
        found += summarise(original, "n_groups", ["mean"], **shared)
        found += summarise(original, "n_forget", ["mean"], **shared)
        found += summarise(original, "m4", ["mean", "sd"], name="m4_original", **shared)
        found += summarise(oracle, "m4", ["mean", "sd"], name="m4_oracle", **shared)
        found += _state_interval("m4_difference", pair_models(runs), **shared)
        found += summarise(original, "m4_held_out", ["mean", "sd"], **shared)
        for column in ("m4_placebo", "m4_placebo_low", "m4_placebo_high"):
            found += summarise(original, column, ["mean"], **shared)
        found += _state_published(original, keys, shared)
        found += _state_p_values(original, "m4_original_p", shared) + _state_p_values(oracle, "m4_oracle_p", shared)
    return found


def find_published_rank(keys: Mapping[str, Any]) -> float:
    """The paper's M4 of the original model at a forget fraction of randomly chosen faces; NaN elsewhere.

    Example:
        >>> where = {"dataset": "lfw", "architecture": "resnet18", "forget_choice": "random", "forget_fraction": 0.01}
        >>> find_published_rank(where)
        0.941
    """
    table = load_table("14")
    is_chosen = (table["column"] == "m4_mean") & (table["method"] == "original")
    for key in ("dataset", "architecture", "forget_fraction"):
        is_chosen &= table[key] == keys[key]
    values = table.loc[is_chosen, "paper"]
    return float(values.iloc[0]) if len(values) and keys["forget_choice"] == "random" else math.nan


def compute_clinical_leak(results: "pd.DataFrame") -> list[Number]:
    """M4 when documents are split by distinct text, when they are split by row, and the difference."""
    rows = rows_of(results, "clinical", _BOTH)
    if LEAKING_SET not in set(rows["dataset"]):
        return []
    found = []
    for keys, runs in split_by(rows, "architecture", "forget_fraction", "method"):
        leaking = runs[runs["dataset"] == LEAKING_SET]["m4"]
        distinct = runs[runs["dataset"] != LEAKING_SET]["m4"]
        shared: dict[str, Any] = {"n_paper": N_SEEDS, "study": "clinical", **keys}
        for name, values in (("distinct", distinct), ("rows", leaking)):
            part = runs[runs.index.isin(values.index)]
            found += summarise(part, "m4", ["mean", "sd"], name=f"m4_{name}", **shared)
        found += _state_interval("m4_leak", difference_interval(leaking, distinct), **shared)
    return found


def pair_models(runs: "pd.DataFrame") -> Interval:
    """M4 of the original minus M4 of the oracle of the same seed and forget set, over seeds.

    Example:
        >>> import pandas
        >>> runs = pandas.DataFrame({"seed": [0, 0], "forget_seed": [9, 9], "m4": [0.75, 0.5]})
        >>> pair_models(runs.assign(method=["original", "oracle"])).value
        0.25
    """
    table = runs[runs["method"].isin(_BOTH)].pivot_table(index=_PAIRED_BY, columns="method", values="m4")
    both = table.reindex(columns=list(_BOTH))
    return mean_interval((both["original"] - both["oracle"]).to_numpy())


def _state_interval(column: str, interval: Interval, **shared: Any) -> list[Number]:
    note = "" if interval.is_known else "one run has no spread" if interval.n else "no run measured this"
    ends = {"": interval.value, "_low": interval.low, "_high": interval.high}
    return [
        Number(column=f"{column}{end}", value=value, n=interval.n, note=note if math.isnan(value) else "", **shared)
        for end, value in ends.items()
    ]


def _state_published(original: "pd.DataFrame", keys: Mapping[str, Any], shared: dict[str, Any]) -> list[Number]:
    """The paper's M4, and 1 where the range of placebo sets holds it, 0 where it does not."""
    paper = find_published_rank(keys)
    if math.isnan(paper):
        return []
    low, high = (float(original[f"m4_placebo_{end}"].mean()) for end in ("low", "high"))
    is_known = not (math.isnan(low) or math.isnan(high))
    holds, note = (float(low <= paper <= high), "") if is_known else (math.nan, "no run measured this")
    return [
        Number(column="m4_original_mean_paper", value=paper, n=len(original), **shared),
        Number(column="m4_placebo_holds_paper", value=holds, n=len(original), note=note, **shared),
    ]


def _state_p_values(runs: "pd.DataFrame", name: str, shared: dict[str, Any]) -> list[Number]:
    known = runs["m4_placebo_p"].dropna()
    note = "" if len(known) else "no run measured this"
    values = {
        "median": float(known.median()),
        "min": float(known.min()),
        "max": float(known.max()),
        "combined": combine_p_values(known.to_numpy()),
    }
    return [
        Number(column=f"{name}_{end}", value=value, n=len(known), note=note, **shared) for end, value in values.items()
    ]
