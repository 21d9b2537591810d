"""What the studies of the ten tabular datasets give: Tables 1 to 11, every method against every other, and the text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.results import PAPER_DATASETS, average_seeds, rows_of, split_by
from ruler.paper.tables.numbers import Number, state, summarise
from ruler.stats import compare_methods, paired_signed_rank

if TYPE_CHECKING:
    import pandas as pd

MAIN_FRACTION = 0.05
BY_CONDITION = ("forget_fraction", "method")
WITH_ORACLE = (*APPROXIMATE_METHODS, "oracle")
_MAIN_TEACHER_SEED = 100
_RANKS = ("m2", "m4")
_OUTPUTS = ("mia", "forget_accuracy", "retain_accuracy", "test_accuracy")
_COMPARED = ("m2", "m4", "mia", "retain_accuracy")
_POOLED = ("mean", "p_wilcoxon", "rank_biserial")
_BY_DATASET = ("mean", "p_wilcoxon_datasets", "rank_biserial_datasets")

_N_PRIMARY = 1200
_SIDES = {
    "significant": lambda value: value < 0.05,
    "negative": lambda value: value < 0,
    "positive": lambda value: value > 0,
    "above_null": lambda value: value > 0.5,
}


@dataclass(frozen=True)
class Summary:
    """A table that is statistics of metrics over the runs of a study."""

    study: str
    metrics: Sequence[str]
    statistics: Sequence[str]
    n_paper: int
    methods: tuple[str, ...] = APPROXIMATE_METHODS
    by: Sequence[str] = BY_CONDITION

    def __call__(self, results: "pd.DataFrame", **keys: Any) -> list[Number]:
        """The numbers of these results, under keys of their own as well."""
        rows = rows_of(results, self.study, self.methods)
        return summarise(rows, self.metrics, self.statistics, self.by, n_paper=self.n_paper, study=self.study, **keys)


TABLE_1 = Summary("primary", _RANKS, ("mean", "p_mixed", "rank_biserial"), 100)
TABLE_3 = Summary("primary", _OUTPUTS, ("mean", "sd"), 100)
TABLE_4 = Summary("primary", ("mia",), ("mean",), 10, WITH_ORACLE, (*BY_CONDITION, "dataset"))
TABLE_5 = {"median": Summary("primary", ("m2",), _POOLED, 100)}
TABLE_5["mean"] = Summary("primary", ("m2_mean_baseline",), _POOLED, 100)
# Where the mixed model is singular, the Wilcoxon test is left.
TABLE_6 = Summary("minibatch", _RANKS, ("mean", "p_mixed", "p_wilcoxon", "rank_biserial"), 50)


def compute_table_5(results: "pd.DataFrame") -> list[Number]:
    """M2 against the median and against the mean of the retain similarities."""
    return [number for baseline, table in TABLE_5.items() for number in table(results, name="m2", baseline=baseline)]


def compute_learning_rates(results: "pd.DataFrame", part: int) -> list[Number]:
    """M2 and M4 by learning rate, N = 10 per number: of the first five datasets in part 1, of all others in part 2."""
    is_first = results["dataset"].isin(PAPER_DATASETS[:5])
    rows = rows_of(results[is_first == (part == 1)], "learning-rate")
    by, study = ("dataset", "method", "forget_fraction"), "learning-rate"
    found = summarise(rows, _RANKS, ("mean",), (*by, "learning_rate"), n_paper=10, study=study)
    for place, runs in split_by(rows, *by):
        gaps, ranks = (average_seeds(runs, metric, "learning_rate") for metric in _RANKS)
        holds = int(((gaps < 0) & (ranks.reindex(gaps.index) > 0.5)).sum())
        place |= {"study": study, "out_of": len(gaps), "n": len(runs), "n_paper": 30}
        found.append(Number(column="n_holds", value=holds, **place))
    return found


def compute_table_9(results: "pd.DataFrame") -> list[Number]:
    """How much M2 and M4 depend on which records are forgotten, N = 100 per row."""
    found = []
    for keys, runs in split_by(rows_of(results, "forget-seeds"), "dataset", "forget_fraction"):
        shared: dict[str, Any] = {"n": len(runs), "n_paper": 100, "study": "forget-seeds", **keys}
        found.append(Number(column="n_forget", value=float(runs["n_forget"].median()), **shared))
        for metric in _RANKS:
            means = average_seeds(runs, metric, "method", "forget_seed")
            if metric == "m2":
                n_negative = int((means < 0).sum())
                found.append(Number(column="m2_n_negative", value=n_negative, out_of=len(means), **shared))
            # Median over methods of the SD, over forget sets, of the mean of the training seeds.
            spreads = means.groupby("method").std(ddof=1).dropna().to_numpy(dtype=np.float64)
            value = float(np.median(spreads)) if len(spreads) else math.nan
            found += state({f"{metric}_seed_sd": value}, "one forget set has no spread", **shared)
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
    rows = gather_five_methods(results)
    return summarise(rows, _RANKS, _BY_DATASET, BY_CONDITION, n_paper=100, study="bad-teacher")


def compute_table_11(results: "pd.DataFrame") -> list[Number]:
    """M4 of Bad Teacher minus M4 of each method, paired by dataset, N = 10 pairs of 10 runs."""
    found = []
    for fraction, runs in split_by(gather_five_methods(results), "forget_fraction"):
        teacher = runs[runs["method"] == "bad_teacher"]
        for method, other in split_by(runs[runs["method"] != "bad_teacher"], "method"):
            keys: dict[str, Any] = {"study": "bad-teacher", "other_method": "bad_teacher", **fraction, **method}
            found += summarise(other, ("m4",), ("mean",), n_paper=100, **keys)
            keys |= {"n": len(other) + len(teacher), "n_paper": 200}
            ours, theirs = average_seeds(other, "m4", "dataset"), average_seeds(teacher, "m4", "dataset")
            common = ours.index.intersection(theirs.index)
            difference, p_value, notes = math.nan, math.nan, ["no dataset has runs of both methods"] * 2
            if len(common):
                difference = float((theirs[common] - ours[common]).mean())
                test = paired_signed_rank(theirs[common], ours[common])
                p_value, notes = test.p_value, ["", test.note]
            found.append(Number(column="m4_difference", value=difference, note=notes[0], **keys))
            found.append(Number(column="m4_p_paired", value=p_value, note=notes[1], **keys))
    return found


def compute_method_comparisons(results: "pd.DataFrame") -> list[Number]:
    """Section 5.3: differences of dataset means over all fractions and seeds, 24 tests corrected as one family."""
    rows = rows_of(results, "primary")
    scores = {}
    for metric in _COMPARED:
        means = average_seeds(rows, metric, "method", "dataset").unstack("method").dropna()
        methods = {method: means[method] for method in APPROXIMATE_METHODS if method in means}
        if len(methods) > 1 and len(means):
            scores[metric] = methods
    found = []
    # The paper's 0.046 is the normal approximation's: see compare_methods.
    for test in compare_methods(scores, distribution="normal"):
        keys: dict[str, Any] = {"n_paper": 600, "study": "primary", "source": "section 5.3"}
        keys |= {"method": test.first, "other_method": test.second}
        keys["n"] = int(rows["method"].isin([test.first, test.second]).sum())
        found.append(Number(column=f"{test.metric}_difference", value=test.difference, **keys))
        for name, value in (("p_paired", test.p_value), ("p_adjusted", test.p_adjusted)):
            found.append(Number(column=f"{test.metric}_{name}", value=value, note=test.note, **keys))
    return found


def compute_text(results: "pd.DataFrame") -> list[Number]:
    """The numbers that the paper states of these studies in its text and captions."""
    parts = (
        _count_conditions,
        _from_primary_runs,
        compute_method_comparisons,
        _from_other_studies,
        _from_teachers,
    )
    return [number for part in parts for number in part(results)]


def _count_conditions(results: "pd.DataFrame") -> list[Number]:
    """In how many conditions of Tables 1 and 5 a mean or a p-value lies on one side."""
    first, fifth = TABLE_1(results), compute_table_5(results)
    found = [
        replace(number, source="caption of Table 5")
        for number in fifth
        if number.column == "m2_p_wilcoxon" and number.baseline == "median"
    ]
    for source, counted, statistic, side, table, baseline in (
        ("section 5.1", "m2_n_significant_mixed", "m2_p_mixed", "significant", first, ""),
        ("section 5.1", "m2_n_negative_conditions", "m2_mean", "negative", first, ""),
        ("section 5.1", "m4_n_above_null_conditions", "m4_mean", "above_null", first, ""),
        ("section 5", "m4_n_significant_mixed", "m4_p_mixed", "significant", first, ""),
        ("appendix A.5", "m2_n_significant_wilcoxon", "m2_p_wilcoxon", "significant", fifth, "median"),
        ("appendix A.5", "m2_n_significant_wilcoxon", "m2_p_wilcoxon", "significant", fifth, "mean"),
        ("appendix A.5", "m2_n_positive_conditions", "m2_mean", "positive", fifth, "mean"),
    ):
        numbers = [one for one in table if (one.column, one.baseline) == (statistic, baseline)]
        is_hit = np.array([_SIDES[side](number.value) for number in numbers])
        keys: dict[str, Any] = {"study": "primary", "source": source, "baseline": baseline, "n_paper": _N_PRIMARY}
        found += _share(counted, is_hit, n=sum(number.n for number in numbers), **keys)
    return found


def _share(column: str, is_hit: Any, **keys: Any) -> list[Number]:
    """How many of these are hits, out of how many; nothing where there are none."""
    return state({column: int(is_hit.sum())}, out_of=len(is_hit), **keys) if len(is_hit) else []


def _share_negative(
    column: str, rows: "pd.DataFrame", metric: str, by: list[str], over: list[str], **keys: Any
) -> list[Number]:
    """For how many of the places ``by`` the mean of the seeds is negative for all that lies under ``over``."""
    is_negative = (average_seeds(rows, metric, *by, *over) < 0).groupby(by).all()
    return _share(column, is_negative, n=len(rows), **keys)


def _from_primary_runs(results: "pd.DataFrame") -> list[Number]:
    rows = rows_of(results, "primary")
    keys: dict[str, Any] = {"study": "primary", "n_paper": 100}
    oracles = Summary("primary", ("mia",), ("mean",), 100, ("oracle",), ("forget_fraction",))
    found = oracles(results, source="caption of Table 3", method="oracle")
    shift = rows.assign(shift=rows["m2_mean_baseline"] - rows["m2"])
    shifts = summarise(shift, ("shift",), ("mean",), BY_CONDITION, source="section 3.3", **keys)
    found += [replace(number, column="m2_baseline_shift") for number in shifts]
    iccs = summarise(rows, ("m4",), ("icc",), BY_CONDITION, **keys)
    known = [number.value for number in iccs if not np.isnan(number.value)]
    if known:
        note, n = f"mean over {len(known)} conditions", sum(number.n for number in iccs)
        total: dict[str, Any] = {"n": n, "n_paper": _N_PRIMARY, "source": "section 5", "study": "primary"}
        found.append(Number(column="m4_icc", value=float(np.mean(known)), note=note, **total))
    found += _similarity(results, "primary", "original", "same_seed_oracle_original_similarity", 300)
    # The text names no fraction for the following; its analysis by dataset, Fig. 7, is at 5%.
    main = rows[rows["forget_fraction"] == MAIN_FRACTION]
    place: dict[str, Any] = {"source": "section 5.1", "study": "primary"}
    found += summarise(main, ("m4",), ("mean",), ("dataset",), n_paper=40, **place)
    place |= {"forget_fraction": MAIN_FRACTION, "n_paper": 400}
    return found + _share_negative("m3_n_datasets_all_methods_negative", main, "m3", ["dataset"], ["method"], **place)


def _similarity(results: "pd.DataFrame", study: str, method: str, column: str, n_paper: int) -> list[Number]:
    known = rows_of(results, study, (method,))["m1"].dropna()
    if known.empty:
        return []
    mean = float(np.mean(known.to_numpy(dtype=np.float64)))
    return state({column: mean}, n=len(known), n_paper=n_paper, source="appendix A.16", study=study)


def _from_other_studies(results: "pd.DataFrame") -> list[Number]:
    """Pairs of oracles, mini-batch training, learning rates and forget sets."""
    found = _similarity(results, "oracle-null", "oracle", "different_seed_oracle_similarity", 450)
    for keys, part in split_by(rows_of(results, "oracle-null", ("oracle",)), "forget_fraction"):
        keys |= {"source": "caption of Fig. 5", "study": "oracle-null", "n_paper": 450}
        n = int(part["m2"].notna().sum())
        found += state({"m2_n_pairs": n}, n=n, **keys)
    found += Summary("minibatch", ("m4",), ("icc",), 50)(results, source="appendix A.6")
    for keys, runs in split_by(rows_of(results, "learning-rate"), "forget_fraction"):
        keys |= {"source": "appendix A.7", "study": "learning-rate", "n_paper": 1200}
        over = ["method", "learning_rate"]
        found += _share_negative("m2_n_datasets_all_negative", runs, "m2", ["dataset"], over, **keys)
    rows, by, over = rows_of(results, "forget-seeds"), ["dataset", "forget_fraction"], ["method", "forget_seed"]
    keys = {"source": "appendix A.8", "study": "forget-seeds", "n_paper": 3000}
    found += _share_negative("m2_n_cells_all_negative", rows, "m2", by, over, **keys)
    return found + (state({"n_runs": len(rows)}, n=len(rows), **keys) if len(rows) else [])


def _from_teachers(results: "pd.DataFrame") -> list[Number]:
    rows = rows_of(results, "bad-teacher", ("bad_teacher",))
    keys: dict[str, Any] = {"source": "appendix A.11", "study": "bad-teacher", "method": "bad_teacher"}
    found = []
    for fraction, runs in split_by(rows, "forget_fraction"):
        column = "m2_n_datasets_negative_all_teachers"
        found += _share_negative(column, runs, "m2", ["dataset"], ["teacher_seed"], n_paper=300, **keys, **fraction)
    ranks = average_seeds(rows, "m4", "forget_fraction", "dataset", "teacher_seed")
    if ranks.empty:
        return found
    spread = ranks.groupby(["forget_fraction", "dataset"]).agg(lambda means: means.max() - means.min())
    return found + state({"m4_teacher_variation": float(spread.max())}, n=len(rows), n_paper=900, **keys)
