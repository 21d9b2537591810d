"""Tables 7, 8 and 9: other learning rates, other forget sets."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.paper.names import DATASETS
from ruler.paper.results import average_seeds, rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd

_TABLE_7 = DATASETS[:5]


def compute_table_7(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 by learning rate, N = 10 a number, the first five datasets."""
    return _compute_learning_rates(results[results["dataset"].isin(_TABLE_7)])


def compute_table_8(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 by learning rate, N = 10 a number, the other datasets."""
    return _compute_learning_rates(results[~results["dataset"].isin(_TABLE_7)])


def compute_table_9(results: "pd.DataFrame") -> list[Number]:
    """How much M2 and M4 depend on which records are forgotten, N = 100 a row."""
    found = []
    for keys, runs in split_by(rows_of(results, "forget-seeds"), "dataset", "forget_fraction"):
        found += _vary_forget_sets(runs, {"study": "forget-seeds", **keys})
    return found


def _compute_learning_rates(results: "pd.DataFrame") -> list[Number]:
    found = []
    for keys, runs in split_by(rows_of(results, "learning-rate"), "dataset", "method", "forget_fraction"):
        keys = {"study": "learning-rate", **keys}
        for rate, part in split_by(runs, "learning_rate"):
            for metric in ("m2", "m4"):
                found += summarise(part, metric, ["mean"], n_paper=10, **keys, **rate)
        found.append(_count_rates_that_hold(runs, keys))
    return found


def _count_rates_that_hold(runs: "pd.DataFrame", keys: dict[str, Any]) -> Number:
    gaps, ranks = (average_seeds(runs, metric, "learning_rate") for metric in ("m2", "m4"))
    holds = int(((gaps < 0) & (ranks.reindex(gaps.index) > 0.5)).sum())
    return Number(column="n_holds", value=holds, out_of=len(gaps), n=len(runs), n_paper=30, **keys)


def _vary_forget_sets(runs: "pd.DataFrame", keys: dict[str, Any]) -> list[Number]:
    shared: dict[str, Any] = {"n": len(runs), "n_paper": 100, **keys}
    means = average_seeds(runs, "m2", "method", "forget_seed")
    n_negative = int((means < 0).sum())
    return [
        Number(column="n_forget", value=float(runs["n_forget"].median()), **shared),
        Number(column="m2_n_negative", value=n_negative, out_of=len(means), **shared),
        *(_spread_over_forget_sets(runs, metric, shared) for metric in ("m2", "m4")),
    ]


def _spread_over_forget_sets(runs: "pd.DataFrame", metric: str, shared: dict[str, Any]) -> Number:
    # Median over methods of the SD, over forget sets, of the mean of the training seeds.
    means = average_seeds(runs, metric, "method", "forget_seed")
    spreads = means.groupby("method").std(ddof=1).dropna().to_numpy(dtype=np.float64)
    is_known = len(spreads) > 0
    value = float(np.median(spreads)) if is_known else math.nan
    note = "" if is_known else "one forget set has no spread"
    return Number(column=f"{metric}_seed_sd", value=value, note=note, **shared)
