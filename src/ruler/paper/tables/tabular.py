"""Tables 1 to 11: what the studies of the ten tabular datasets give, and every method against every other."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.results import PAPER_DATASETS, average_seeds, rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise, summarise_each
from ruler.stats import compare_methods, paired_signed_rank

if TYPE_CHECKING:
    import pandas as pd

MAIN_FRACTION = 0.05
_MAIN_TEACHER_SEED = 100
_WITH_ORACLE = (*APPROXIMATE_METHODS, "oracle")
_BY_CONDITION = ("forget_fraction", "method")
_OUTPUTS = ("mia", "forget_accuracy", "retain_accuracy", "test_accuracy")
_COMPARED = ("m2", "m4", "mia", "retain_accuracy")


def compute_table_1(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 with the mixed model's p and the pooled effect size, N = 100."""
    statistics = ("mean", "p_mixed", "rank_biserial")
    rows = rows_of(results, "primary")
    return summarise_each(rows, _BY_CONDITION, ("m2", "m4"), statistics, n_paper=100, study="primary")


def compute_table_3(results: "pd.DataFrame") -> list[Number]:
    """Mean and SD over all runs of the membership attack and of three accuracies, N = 100."""
    rows = rows_of(results, "primary")
    return summarise_each(rows, _BY_CONDITION, _OUTPUTS, ("mean", "sd"), n_paper=100, study="primary")


def compute_table_4(results: "pd.DataFrame") -> list[Number]:
    """Mean of the membership attack on each dataset, the oracle beside the methods, N = 10."""
    rows = rows_of(results, "primary", _WITH_ORACLE)
    return summarise_each(rows, (*_BY_CONDITION, "dataset"), ("mia",), ("mean",), n_paper=10, study="primary")


def compute_table_5(results: "pd.DataFrame") -> list[Number]:
    """M2 against the median and against the mean of the retain similarities, pooled Wilcoxon, N = 100."""
    keys: dict[str, Any] = {"name": "m2", "n_paper": 100, "study": "primary"}
    statistics = ("mean", "p_wilcoxon", "rank_biserial")
    rows = rows_of(results, "primary")
    return [
        number
        for baseline, metric in (("median", "m2"), ("mean", "m2_mean_baseline"))
        for number in summarise_each(rows, _BY_CONDITION, (metric,), statistics, baseline=baseline, **keys)
    ]


def compute_table_6(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 after mini-batch training; a singular mixed model leaves the Wilcoxon test, N = 50."""
    statistics = ("mean", "p_mixed", "p_wilcoxon", "rank_biserial")
    rows = rows_of(results, "minibatch")
    return summarise_each(rows, _BY_CONDITION, ("m2", "m4"), statistics, n_paper=50, study="minibatch")


def compute_learning_rates(results: "pd.DataFrame", part: int) -> list[Number]:
    """M2 and M4 by learning rate, N = 10 per number: of the first five datasets in part 1, of all others in part 2."""
    is_first = results["dataset"].isin(PAPER_DATASETS[:5])
    rows = rows_of(results[is_first == (part == 1)], "learning-rate")
    by = ("dataset", "method", "forget_fraction")
    keys: dict[str, Any] = {"study": "learning-rate"}
    found = summarise_each(rows, (*by, "learning_rate"), ("m2", "m4"), ("mean",), n_paper=10, **keys)
    for place, runs in split_by(rows, *by):
        gaps, ranks = (average_seeds(runs, metric, "learning_rate") for metric in ("m2", "m4"))
        holds = int(((gaps < 0) & (ranks.reindex(gaps.index) > 0.5)).sum())
        place |= {"out_of": len(gaps), "n": len(runs), "n_paper": 30}
        found.append(Number(column="n_holds", value=holds, **keys, **place))
    return found


def compute_table_9(results: "pd.DataFrame") -> list[Number]:
    """How much M2 and M4 depend on which records are forgotten, N = 100 per row."""
    found = []
    for keys, runs in split_by(rows_of(results, "forget-seeds"), "dataset", "forget_fraction"):
        shared: dict[str, Any] = {"n": len(runs), "n_paper": 100, "study": "forget-seeds", **keys}
        found.append(Number(column="n_forget", value=float(runs["n_forget"].median()), **shared))
        for metric in ("m2", "m4"):
            means = average_seeds(runs, metric, "method", "forget_seed")
            if metric == "m2":
                n_negative = int((means < 0).sum())
                found.append(Number(column="m2_n_negative", value=n_negative, out_of=len(means), **shared))
            # Median over methods of the SD, over forget sets, of the mean of the training seeds.
            spreads = means.groupby("method").std(ddof=1).dropna().to_numpy(dtype=np.float64)
            value, note = (
                (float(np.median(spreads)), "") if len(spreads) else (math.nan, "one forget set has no spread")
            )
            found.append(Number(column=f"{metric}_seed_sd", value=value, note=note, **shared))
    return found


def gather_five_methods(results: "pd.DataFrame") -> "pd.DataFrame":
    """Runs of the primary study and, with the main teacher, of Bad Teacher; none when that was not run."""
    import pandas as pd

    teacher = rows_of(results, "bad-teacher", ("bad_teacher",))
    teacher = teacher[teacher["teacher_seed"] == _MAIN_TEACHER_SEED]
    others = rows_of(results, "primary")
    return pd.concat([others, teacher], ignore_index=True) if len(teacher) and len(others) else teacher


def compute_table_10(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 tested on dataset means, N = 10 datasets of 10 runs."""
    statistics = ("mean", "p_wilcoxon_datasets", "rank_biserial_datasets")
    rows = gather_five_methods(results)
    return summarise_each(rows, _BY_CONDITION, ("m2", "m4"), statistics, n_paper=100, study="bad-teacher")


def compute_table_11(results: "pd.DataFrame") -> list[Number]:
    """M4 of Bad Teacher minus M4 of each method, paired by dataset, N = 10 pairs of 10 runs."""
    found = []
    for fraction, runs in split_by(gather_five_methods(results), "forget_fraction"):
        teacher = runs[runs["method"] == "bad_teacher"]
        for method, other in split_by(runs[runs["method"] != "bad_teacher"], "method"):
            keys = {"study": "bad-teacher", "other_method": "bad_teacher", **fraction, **method}
            found += summarise(other, "m4", ["mean"], n_paper=100, **keys)
            found += _pair_with_teacher(other, teacher, n=len(other) + len(teacher), n_paper=200, **keys)
    return found


def _pair_with_teacher(other: "pd.DataFrame", teacher: "pd.DataFrame", **shared: Any) -> list[Number]:
    ours, theirs = average_seeds(other, "m4", "dataset"), average_seeds(teacher, "m4", "dataset")
    common = ours.index.intersection(theirs.index)
    difference = p_value = math.nan
    notes = ["no dataset has runs of both methods"] * 2
    if len(common):
        difference = float((theirs[common] - ours[common]).mean())
        test = paired_signed_rank(theirs[common], ours[common])
        p_value, notes = test.p_value, ["", test.note]
    return [
        Number(column="m4_difference", value=difference, note=notes[0], **shared),
        Number(column="m4_p_paired", value=p_value, note=notes[1], **shared),
    ]


def compute_method_comparisons(results: "pd.DataFrame") -> list[Number]:
    """Section 5.3: differences of dataset means over all fractions and seeds, 24 tests corrected as one family."""
    rows = rows_of(results, "primary")
    scores = {}
    for metric in _COMPARED:
        means = average_seeds(rows, metric, "method", "dataset").unstack("method").dropna()
        methods = {method: means[method] for method in APPROXIMATE_METHODS if method in means}
        if len(methods) > 1 and len(means):
            scores[metric] = methods
    keys: dict[str, Any] = {"n_paper": 600, "study": "primary", "source": "section 5.3"}
    found = []
    # The paper's 0.046 is the normal approximation's: see compare_methods.
    for test in compare_methods(scores, distribution="normal"):
        pair: dict[str, Any] = {"method": test.first, "other_method": test.second}
        pair["n"] = int(rows["method"].isin([test.first, test.second]).sum())
        for name, value in (
            ("difference", test.difference),
            ("p_paired", test.p_value),
            ("p_adjusted", test.p_adjusted),
        ):
            note = test.note if name != "difference" else ""
            found.append(Number(column=f"{test.metric}_{name}", value=value, note=note, **pair, **keys))
    return found
