"""The numbers that the paper states in its text and captions."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.paper.results import average_seeds, rows_of, split_by
from ruler.paper.tables.diagnostics import compute_diagnostic_text
from ruler.paper.tables.methods import compute_method_comparisons
from ruler.paper.tables.numbers import Number, summarise
from ruler.paper.tables.residuals import compute_table_1, compute_table_5

if TYPE_CHECKING:
    import pandas as pd

_MAIN_FRACTION = 0.05
_N_PRIMARY = 1200


def compute_text_numbers(results: "pd.DataFrame") -> list[Number]:
    """Every number of the text that the studies of ``results`` determine."""
    parts = (
        _from_table_1,
        _from_table_5,
        _from_primary_runs,
        compute_method_comparisons,
        _from_oracle_pairs,
        _from_minibatch,
        _from_learning_rates,
        _from_forget_seeds,
        _from_teachers,
        compute_diagnostic_text,
    )
    return [number for part in parts for number in part(results)]


def _count(
    source: str,
    column: str,
    numbers: list[Number],
    is_counted: Callable[[float], bool],
    **keys: Any,
) -> list[Number]:
    if not numbers:
        return []
    n = sum(number.n for number in numbers)
    hits = sum(is_counted(number.value) for number in numbers)
    shared: dict[str, Any] = {"source": source, "study": numbers[0].study, "out_of": len(numbers), **keys}
    return [Number(column=column, value=hits, n=n, n_paper=_N_PRIMARY, **shared)]


def _is_significant(p_value: float) -> bool:
    return p_value < 0.05


def _is_negative(value: float) -> bool:
    return value < 0


def _from_table_1(results: "pd.DataFrame") -> list[Number]:
    numbers = compute_table_1(results)
    by_column = {name: [number for number in numbers if number.column == name] for name in {n.column for n in numbers}}
    m2, m4 = by_column.get("m2_mean", []), by_column.get("m4_mean", [])
    m2_p, m4_p = by_column.get("m2_p_mixed", []), by_column.get("m4_p_mixed", [])
    return [
        *_count("section 5.1", "m2_n_significant_mixed", m2_p, _is_significant),
        *_count("section 5.1", "m2_n_negative_conditions", m2, _is_negative),
        *_count("section 5.1", "m4_n_above_null_conditions", m4, lambda value: value > 0.5),
        *_count("section 5", "m4_n_significant_mixed", m4_p, _is_significant),
    ]


def _from_table_5(results: "pd.DataFrame") -> list[Number]:
    numbers = compute_table_5(results)
    found = []
    for baseline in ("median", "mean"):
        own = [number for number in numbers if number.baseline == baseline]
        p_values = [number for number in own if number.column == "m2_p_wilcoxon"]
        means = [number for number in own if number.column == "m2_mean"]
        key = {"baseline": baseline}
        found += _count("appendix A.5", "m2_n_significant_wilcoxon", p_values, _is_significant, **key)
        if baseline == "mean":
            found += _count("appendix A.5", "m2_n_positive_conditions", means, lambda value: value > 0, **key)
        else:
            found += [replace(number, source="caption of Table 5") for number in p_values]
    return found


def _from_primary_runs(results: "pd.DataFrame") -> list[Number]:
    rows, oracles = rows_of(results, "primary"), rows_of(results, "primary", ("oracle",))
    found = []
    for keys, runs in split_by(oracles, "forget_fraction"):
        keys = {"source": "caption of Table 3", "study": "primary", "method": "oracle", **keys}
        found += summarise(runs, "mia", ["mean"], n_paper=100, **keys)
    for keys, runs in split_by(rows, "forget_fraction", "method"):
        shift = runs.assign(m2_baseline=runs["m2_mean_baseline"] - runs["m2"])
        [number] = summarise(shift, "m2_baseline", ["mean"], n_paper=100, source="section 3.3", study="primary", **keys)
        found.append(replace(number, column="m2_baseline_shift"))
    found += _from_main_fraction(rows[rows["forget_fraction"] == _MAIN_FRACTION])
    found += _icc_of_conditions(rows)
    originals = rows_of(results, "primary", ("original",))
    return found + _similarity(originals, "same_seed_oracle_original_similarity", "primary", 300)


def _from_main_fraction(rows: "pd.DataFrame") -> list[Number]:
    # The text names no fraction for these two means; its analysis by dataset, Fig. 7, is at 5%.
    found = []
    for keys, runs in split_by(rows, "dataset"):
        found += summarise(runs, "m4", ["mean"], n_paper=40, source="section 5.1", study="primary", **keys)
    shifts = average_seeds(rows, "m3", "dataset", "method")
    if shifts.empty:
        return found
    is_negative = (shifts < 0).groupby("dataset").all()
    keys = {"source": "section 5.1", "study": "primary", "forget_fraction": _MAIN_FRACTION}
    return [*found, _share("m3_n_datasets_all_methods_negative", is_negative, len(rows), 400, keys)]


def _share(column: str, is_hit: Any, n: int, n_paper: int, keys: dict[str, Any]) -> Number:
    return Number(column=column, value=int(is_hit.sum()), out_of=len(is_hit), n=n, n_paper=n_paper, **keys)


def _icc_of_conditions(rows: "pd.DataFrame") -> list[Number]:
    iccs = [
        number
        for _, runs in split_by(rows, "forget_fraction", "method")
        for number in summarise(runs, "m4", ["icc"], n_paper=100)
    ]
    known = [number.value for number in iccs if not np.isnan(number.value)]
    if not known:
        return []
    note = f"mean over {len(known)} conditions"
    n = sum(number.n for number in iccs)
    value = float(np.mean(known))
    keys: dict[str, Any] = {"source": "section 5", "study": "primary", "note": note}
    return [Number(column="m4_icc", value=value, n=n, n_paper=_N_PRIMARY, **keys)]


def _similarity(rows: "pd.DataFrame", column: str, study: str, n_paper: int) -> list[Number]:
    if rows["m1"].notna().sum() == 0:
        return []
    [number] = summarise(rows, "m1", ["mean"], n_paper=n_paper, source="appendix A.16", study=study)
    return [replace(number, column=column)]


def _from_oracle_pairs(results: "pd.DataFrame") -> list[Number]:
    pairs = rows_of(results, "oracle-null", ("oracle",))
    if pairs.empty:
        return []
    found = []
    for keys, part in split_by(pairs, "forget_fraction"):
        n = int(part["m2"].notna().sum())
        keys = {"source": "caption of Fig. 5", "study": "oracle-null", **keys}
        found.append(Number(column="m2_n_pairs", value=n, n=n, n_paper=450, **keys))
    return found + _similarity(pairs, "different_seed_oracle_similarity", "oracle-null", 450)


def _from_minibatch(results: "pd.DataFrame") -> list[Number]:
    keys: dict[str, Any] = {"source": "appendix A.6", "study": "minibatch", "n_paper": 50}
    return [
        number
        for condition, runs in split_by(rows_of(results, "minibatch"), "forget_fraction", "method")
        for number in summarise(runs, "m4", ["icc"], **keys, **condition)
    ]


def _from_learning_rates(results: "pd.DataFrame") -> list[Number]:
    found = []
    for fraction, runs in split_by(rows_of(results, "learning-rate"), "forget_fraction"):
        is_negative = average_seeds(runs, "m2", "dataset", "method", "learning_rate") < 0
        keys = {"source": "appendix A.7", "study": "learning-rate", **fraction}
        by_dataset = is_negative.groupby("dataset").all()
        found.append(_share("m2_n_datasets_all_negative", by_dataset, len(runs), 1200, keys))
    return found


def _from_forget_seeds(results: "pd.DataFrame") -> list[Number]:
    rows = rows_of(results, "forget-seeds")
    if rows.empty:
        return []
    is_negative = average_seeds(rows, "m2", "dataset", "forget_fraction", "method", "forget_seed") < 0
    by_cell = is_negative.groupby(["dataset", "forget_fraction"]).all()
    keys: dict[str, Any] = {"source": "appendix A.8", "study": "forget-seeds"}
    n = len(rows)
    return [
        _share("m2_n_cells_all_negative", by_cell, n, 3000, keys),
        Number(column="n_runs", value=n, n=n, n_paper=3000, **keys),
    ]


def _from_teachers(results: "pd.DataFrame") -> list[Number]:
    rows = rows_of(results, "bad-teacher", ("bad_teacher",))
    keys: dict[str, Any] = {"source": "appendix A.11", "study": "bad-teacher", "method": "bad_teacher"}
    found = []
    for fraction, runs in split_by(rows, "forget_fraction"):
        is_negative = (average_seeds(runs, "m2", "dataset", "teacher_seed") < 0).groupby("dataset").all()
        column = "m2_n_datasets_negative_all_teachers"
        found.append(_share(column, is_negative, len(runs), 300, {**keys, **fraction}))
    ranks = average_seeds(rows, "m4", "forget_fraction", "dataset", "teacher_seed")
    if ranks.empty:
        return found
    spread = ranks.groupby(["forget_fraction", "dataset"]).agg(lambda means: means.max() - means.min())
    largest = float(spread.max())
    return [*found, Number(column="m4_teacher_variation", value=largest, n=len(rows), n_paper=900, **keys)]
