"""The numbers that the paper states in its text and captions."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.paper.results import average_seeds, rows_of, split_by
from ruler.paper.tables.diagnostics import compute_diagnostic_text
from ruler.paper.tables.numbers import Number, state, summarise
from ruler.paper.tables.tabular import (
    BY_CONDITION,
    MAIN_FRACTION,
    TABLE_1,
    Summary,
    compute_method_comparisons,
    compute_table_5,
)

if TYPE_CHECKING:
    import pandas as pd

_N_PRIMARY = 1200
_SIDES = {
    "significant": lambda value: value < 0.05,
    "negative": lambda value: value < 0,
    "positive": lambda value: value > 0,
    "above_null": lambda value: value > 0.5,
}


def compute_text_numbers(results: "pd.DataFrame") -> list[Number]:
    """Every number of the text that the studies of ``results`` determine."""
    parts = (
        _count_conditions,
        _from_primary_runs,
        compute_method_comparisons,
        _from_other_studies,
        _from_teachers,
        compute_diagnostic_text,
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
