"""Single numbers of a table, and why one is missing."""

import math

import numpy as np
import pandas as pd
from tests.paper.tables.cases import compute

from ruler.paper.results import check_results
from ruler.paper.tables import compute_numbers
from ruler.paper.tables.numbers import Number, as_frame, summarise


def test_runs_without_a_metric_do_not_count(results):
    first = results.index[(results.study == "primary") & (results.method == "scrub")][0]
    results.loc[first, "m2"] = np.nan
    found = compute(results, "1")["1"]
    row = found[(found.method == "scrub") & (found.forget_fraction == 0.01)]
    assert row[row.column == "m2_mean"].n.tolist() == [99]
    assert row[row.column == "m4_mean"].n.tolist() == [100]


def test_one_run_gives_nan_with_a_reason_where_a_number_needs_more(results):
    some = results[(results.dataset == "phoneme") & (results.seed == 0)]
    found = pd.concat(compute_numbers(check_results(some)).values())
    assert found[found.value.isna()].note.ne("").all()
    assert found[found.column == "m2_p_mixed"].value.isna().all()
    assert found[found.column == "mia_sd"].note.unique().tolist() == ["one run has no spread"]
    assert found[found.column == "m2_mean"].value.notna().all()


def test_one_forget_set_has_no_spread(results):
    some = results[(results.study == "forget-seeds") & (results.forget_seed == 999)]
    found = compute(some, "9")["9"]
    assert found[found.column == "m2_seed_sd"].note.unique().tolist() == ["one forget set has no spread"]


def test_all_metrics_missing_is_said():
    rows = pd.DataFrame({"dataset": ["a"], "m3": [np.nan]})
    [found] = summarise(rows, ["m3"], ["mean"], n_paper=10)
    assert math.isnan(found.value)
    assert found.note == "no run measured this"


def test_no_numbers_make_an_empty_frame_with_all_columns():
    assert set(as_frame([]).columns) == set(as_frame([Number(column="a", value=1.0, n=1, n_paper=1)]).columns)
