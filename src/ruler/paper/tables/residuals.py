"""Tables 1, 5 and 6: M2 and M4 over all datasets, by method and forget fraction."""

from typing import TYPE_CHECKING

from ruler.paper.results import rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd


def compute_table_1(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 with the mixed model's p and the pooled effect size, N = 100."""
    found = []
    for keys, runs in split_by(rows_of(results, "primary"), "forget_fraction", "method"):
        for metric in ("m2", "m4"):
            statistics = ["mean", "p_mixed", "rank_biserial"]
            found += summarise(runs, metric, statistics, n_paper=100, study="primary", **keys)
    return found


def compute_table_5(results: "pd.DataFrame") -> list[Number]:
    """M2 against the median and against the mean of the retain similarities, pooled Wilcoxon, N = 100."""
    statistics = ["mean", "p_wilcoxon", "rank_biserial"]
    found = []
    for keys, runs in split_by(rows_of(results, "primary"), "forget_fraction", "method"):
        for baseline, metric in (("median", "m2"), ("mean", "m2_mean_baseline")):
            found += summarise(
                runs, metric, statistics, name="m2", n_paper=100, study="primary", baseline=baseline, **keys
            )
    return found


def compute_table_6(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 after mini-batch training; a singular mixed model leaves the Wilcoxon test, N = 50."""
    statistics = ["mean", "p_mixed", "p_wilcoxon", "rank_biserial"]
    found = []
    for keys, runs in split_by(rows_of(results, "minibatch"), "forget_fraction", "method"):
        for metric in ("m2", "m4"):
            found += summarise(runs, metric, statistics, n_paper=50, study="minibatch", **keys)
    return found
