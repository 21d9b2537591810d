"""The numbers that the paper states in its text and captions."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.paper.results import average_seeds, rows_of, split_by
from ruler.paper.tables.diagnostics import compute_diagnostic_text
from ruler.paper.tables.numbers import Number, summarise, summarise_each
from ruler.paper.tables.tabular import MAIN_FRACTION, compute_method_comparisons, compute_table_1, compute_table_5

if TYPE_CHECKING:
    import pandas as pd

_N_PRIMARY = 1200
_CONDITION = ("forget_fraction", "method")


def compute_text_numbers(results: "pd.DataFrame") -> list[Number]:
    """Every number of the text that the studies of ``results`` determine."""
    parts = (
        _count_conditions,
        _from_primary_runs,
        compute_method_comparisons,
        _from_oracle_pairs,
        _from_other_studies,
        _from_teachers,
        compute_diagnostic_text,
    )
    return [number for part in parts for number in part(results)]


def _count_conditions(results: "pd.DataFrame") -> list[Number]:
    """In how many conditions of Tables 1 and 5 a mean or a p-value lies on one side."""
    found: list[Number] = []

    def count(source: str, column: str, numbers: Iterable[Number], is_hit: Callable[[float], bool], **key: str) -> None:
        counted = list(numbers)
        if counted:
            n, n_hits = sum(number.n for number in counted), sum(is_hit(number.value) for number in counted)
            keys: dict[str, Any] = {"source": source, "study": "primary", "out_of": len(counted), **key}
            found.append(Number(column=column, value=n_hits, n=n, n_paper=_N_PRIMARY, **keys))

    def pick(column: str) -> list[Number]:
        return [number for number in table if number.column == column]

    table = compute_table_1(results)
    count("section 5.1", "m2_n_significant_mixed", pick("m2_p_mixed"), _is_significant)
    count("section 5.1", "m2_n_negative_conditions", pick("m2_mean"), lambda value: value < 0)
    count("section 5.1", "m4_n_above_null_conditions", pick("m4_mean"), lambda value: value > 0.5)
    count("section 5", "m4_n_significant_mixed", pick("m4_p_mixed"), _is_significant)
    whole = compute_table_5(results)
    for baseline in ("median", "mean"):
        table = [number for number in whole if number.baseline == baseline]
        p_values = pick("m2_p_wilcoxon")
        count("appendix A.5", "m2_n_significant_wilcoxon", p_values, _is_significant, baseline=baseline)
        if baseline == "median":
            found += [replace(number, source="caption of Table 5") for number in p_values]
    count("appendix A.5", "m2_n_positive_conditions", pick("m2_mean"), lambda value: value > 0, baseline="mean")
    return found


def _is_significant(p_value: float) -> bool:
    return p_value < 0.05


def _from_primary_runs(results: "pd.DataFrame") -> list[Number]:
    rows, oracles = rows_of(results, "primary"), rows_of(results, "primary", ("oracle",))
    keys: dict[str, Any] = {"study": "primary", "n_paper": 100}
    source = "caption of Table 3"
    found = summarise_each(oracles, ("forget_fraction",), ("mia",), ("mean",), source=source, method="oracle", **keys)
    shift = rows.assign(shift=rows["m2_mean_baseline"] - rows["m2"])
    shifts = summarise_each(shift, _CONDITION, ("shift",), ("mean",), source="section 3.3", **keys)
    found += [replace(number, column="m2_baseline_shift") for number in shifts]
    iccs = summarise_each(rows, _CONDITION, ("m4",), ("icc",), **keys)
    known = [number.value for number in iccs if not np.isnan(number.value)]
    if known:
        note = f"mean over {len(known)} conditions"
        n = sum(number.n for number in iccs)
        total: dict[str, Any] = {"n": n, "n_paper": _N_PRIMARY, "source": "section 5", "study": "primary"}
        found.append(Number(column="m4_icc", value=float(np.mean(known)), note=note, **total))
    originals = rows_of(results, "primary", ("original",))
    found += _similarity(originals, "same_seed_oracle_original_similarity", "primary", 300)
    # The text names no fraction for the following; its analysis by dataset, Fig. 7, is at 5%.
    main = rows[rows["forget_fraction"] == MAIN_FRACTION]
    place: dict[str, Any] = {"source": "section 5.1", "study": "primary"}
    found += summarise_each(main, ("dataset",), ("m4",), ("mean",), n_paper=40, **place)
    is_negative = (average_seeds(main, "m3", "dataset", "method") < 0).groupby("dataset").all()
    place["forget_fraction"] = MAIN_FRACTION
    return found + _share("m3_n_datasets_all_methods_negative", is_negative, n=len(main), n_paper=400, **place)


def _share(column: str, is_hit: Any, **keys: Any) -> list[Number]:
    """How many of these are hits, out of how many; nothing where there are none."""
    return [Number(column=column, value=int(is_hit.sum()), out_of=len(is_hit), **keys)] if len(is_hit) else []


def _similarity(rows: "pd.DataFrame", column: str, study: str, n_paper: int) -> list[Number]:
    if rows["m1"].notna().sum() == 0:
        return []
    [number] = summarise(rows, "m1", ["mean"], n_paper=n_paper, source="appendix A.16", study=study)
    return [replace(number, column=column)]


def _from_oracle_pairs(results: "pd.DataFrame") -> list[Number]:
    pairs = rows_of(results, "oracle-null", ("oracle",))
    found = []
    for keys, part in split_by(pairs, "forget_fraction"):
        n = int(part["m2"].notna().sum())
        keys = {"source": "caption of Fig. 5", "study": "oracle-null", **keys}
        found.append(Number(column="m2_n_pairs", value=n, n=n, n_paper=450, **keys))
    return found + _similarity(pairs, "different_seed_oracle_similarity", "oracle-null", 450)


def _from_other_studies(results: "pd.DataFrame") -> list[Number]:
    """Mini-batch training, learning rates and forget sets."""
    keys: dict[str, Any] = {"source": "appendix A.6", "study": "minibatch", "n_paper": 50}
    found = summarise_each(rows_of(results, "minibatch"), _CONDITION, ("m4",), ("icc",), **keys)
    for fraction, runs in split_by(rows_of(results, "learning-rate"), "forget_fraction"):
        is_negative = average_seeds(runs, "m2", "dataset", "method", "learning_rate") < 0
        keys = {"source": "appendix A.7", "study": "learning-rate", "n": len(runs), "n_paper": 1200, **fraction}
        found += _share("m2_n_datasets_all_negative", is_negative.groupby("dataset").all(), **keys)
    rows = rows_of(results, "forget-seeds")
    is_negative = average_seeds(rows, "m2", "dataset", "forget_fraction", "method", "forget_seed") < 0
    keys = {"source": "appendix A.8", "study": "forget-seeds", "n": len(rows), "n_paper": 3000}
    found += _share("m2_n_cells_all_negative", is_negative.groupby(["dataset", "forget_fraction"]).all(), **keys)
    return found + ([Number(column="n_runs", value=len(rows), **keys)] if len(rows) else [])


def _from_teachers(results: "pd.DataFrame") -> list[Number]:
    rows = rows_of(results, "bad-teacher", ("bad_teacher",))
    keys: dict[str, Any] = {"source": "appendix A.11", "study": "bad-teacher", "method": "bad_teacher"}
    found = []
    for fraction, runs in split_by(rows, "forget_fraction"):
        is_negative = (average_seeds(runs, "m2", "dataset", "teacher_seed") < 0).groupby("dataset").all()
        counted = {"n": len(runs), "n_paper": 300, **keys, **fraction}
        found += _share("m2_n_datasets_negative_all_teachers", is_negative, **counted)
    ranks = average_seeds(rows, "m4", "forget_fraction", "dataset", "teacher_seed")
    if ranks.empty:
        return found
    spread = ranks.groupby(["forget_fraction", "dataset"]).agg(lambda means: means.max() - means.min())
    largest = float(spread.max())
    return [*found, Number(column="m4_teacher_variation", value=largest, n=len(rows), n_paper=900, **keys)]
