import math

import numpy as np
import pandas as pd
import pytest

from ruler.paper.agreement import (
    COLUMNS,
    Tolerance,
    compare_numbers,
    find_tolerance,
    is_significant,
    list_tolerances,
)
from ruler.paper.published import load_table, published_numbers
from ruler.paper.results import DIAGNOSTIC_STUDIES, PAPER_DATASETS, check_results
from ruler.paper.tables import TABLES, compute_numbers
from ruler.paper.tables.numbers import Number, as_frame

TABULAR = [str(table) for table in (1, 3, 4, 5, 6, 7, 8, 9, 10, 11)]
MEASURABLE = [*TABULAR, "12", "13", "14"]


def compare_one(value, *, table="1", column="m2_mean", n=100, n_paper=100, note="", **keys):
    keys = {"study": "primary", "method": "gradient_ascent", "forget_fraction": 0.01} | keys
    frame = as_frame([Number(column=column, value=value, n=n, n_paper=n_paper, note=note, **keys)])
    frame.insert(0, "table", table)
    comparison = compare_numbers({table: frame})
    [row] = comparison[comparison.n.notna()].to_dict("records")
    return row


def set_published(results, study, table, column, metric, **only):
    published = load_table(table)
    published = published[published.column == column]
    for key, value in only.items():
        published = published[published[key] == value]
    keys = ["dataset", "method", "forget_fraction", "learning_rate"]
    keys = [key for key in keys if published[key].notna().all() and (published[key] != "").all()]
    wanted = results[["study", *keys]].merge(published[[*keys, "paper"]], on=keys, how="left").paper.to_numpy()
    is_set = (results.study == study) & ~np.isnan(wanted)
    results.loc[is_set, metric] = wanted[is_set]


@pytest.fixture
def published_results(results):
    """Results whose means are the published ones, wherever two tables do not contradict each other."""
    for metric in ("m2", "m4"):
        set_published(results, "primary", 1, f"{metric}_mean", metric)
        set_published(results, "minibatch", 6, f"{metric}_mean", metric)
        set_published(results, "learning-rate", 7, f"{metric}_mean", metric)
        set_published(results, "learning-rate", 8, f"{metric}_mean", metric)
        set_published(results, "bad-teacher", 10, f"{metric}_mean", metric)
    for metric in ("forget_accuracy", "retain_accuracy", "test_accuracy"):
        set_published(results, "primary", 3, f"{metric}_mean", metric)
    set_published(results, "primary", 4, "mia_mean", "mia")
    set_published(results, "primary", 5, "m2_mean", "m2_mean_baseline", baseline="mean")
    # Means that tie exactly would send every signed-rank test into its slow permutation form.
    step = results.dataset.map(PAPER_DATASETS.index) - 4.5
    results[["m2", "m4"]] += 1e-7 * step.to_numpy()[:, None]
    return results


def test_one_row_per_published_number():
    comparison = compare_numbers({})
    assert len(comparison) == len(published_numbers()) == 1184
    assert list(comparison.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert comparison.agrees.isna().all()
    assert set(comparison[comparison.table == "2"].note) == {"a setting, not a measurement"}
    assert set(comparison[comparison.table != "2"].note) == {"not measured"}


def test_the_papers_own_means_agree_everywhere(published_results):
    comparison = compare_numbers(compute_numbers(check_results(published_results)))
    determined = comparison[comparison.column.isin(DETERMINED) & comparison.table.isin([*TABULAR, "text"])]
    is_elsewhere = determined.study.isin(DIAGNOSTIC_STUDIES) | determined.dataset.isin(
        ["breast_cancer", "heart_disease"]
    )
    determined = determined[(determined.table != "text") | ~is_elsewhere]
    assert determined.agrees.notna().all()
    assert determined[~determined.agrees.astype(bool)].empty
    by_table = determined.groupby("table").size().to_dict()
    expected = {"1": 24, "3": 48, "4": 150, "5": 24, "6": 8, "7": 140, "8": 140, "9": 30, "10": 30, "11": 24, "text": 9}
    assert by_table == expected


DETERMINED = {
    *("m2_mean", "m4_mean", "mia_mean", "m4_difference", "m2_baseline_shift", "n_holds", "n_forget"),
    *("forget_accuracy_mean", "retain_accuracy_mean", "test_accuracy_mean"),
    *("m2_n_negative_conditions", "m4_n_above_null_conditions", "m2_n_pairs", "n_runs"),
}


def test_random_results_do_not_agree_everywhere(full_comparison):
    judged = full_comparison[full_comparison.table.isin(TABULAR)]
    assert judged.agrees.notna().all()
    assert 0.2 < judged.agrees.astype(bool).mean() < 0.8


def test_a_mean_agrees_up_to_its_tolerance_and_not_beyond():
    assert compare_one(-0.00077 - 0.0006)["agrees"] is True
    row = compare_one(-0.00077 - 0.00061)
    assert row["agrees"] is False
    assert row["difference"] == pytest.approx(-0.00061)
    assert row["tolerance"] == "0.0006 or 30%"


@pytest.mark.parametrize(
    ("value", "agrees"),
    [(0.3, True), (0.051, True), (0.049, False)],  # the paper has 0.136
)
def test_p_values_agree_by_significance(value, agrees):
    assert compare_one(value, column="m2_p_mixed")["agrees"] is agrees


def test_a_bound_of_p_is_a_significance():
    keys = {"column": "m2_p_mixed", "forget_fraction": 0.1}
    assert compare_one(0.04, **keys)["agrees"] is True  # the paper has <0.001
    assert compare_one(0.06, **keys)["agrees"] is False
    assert not is_significant(0.05, ">")
    assert is_significant(0.05, "<")


def test_other_bounds_are_missed_by_what_lies_beyond():
    keys = {"table": "text", "source": "appendix A.11", "study": "bad-teacher", "method": "bad_teacher"}
    keys |= {"column": "m4_teacher_variation", "forget_fraction": math.nan}
    inside, near, far = (compare_one(value, **keys) for value in (0.002, 0.009, 0.02))
    assert (inside["difference"], inside["agrees"]) == (0.0, True)
    assert near["difference"] == pytest.approx(0.002)
    assert near["agrees"] is True
    assert far["agrees"] is False
    lower = {"table": "text", "source": "appendix A.6", "study": "minibatch", "column": "m4_icc", "n_paper": 100}
    lower["forget_fraction"] = 0.05
    assert compare_one(0.99, **lower)["difference"] == 0.0
    assert compare_one(0.80, **lower)["agrees"] is False


@pytest.mark.parametrize("n", [94, 20, 101, 200])
def test_another_number_of_runs_is_shown_but_not_judged(n):
    row = compare_one(-0.00077, n=n)
    assert pd.isna(row["agrees"])
    assert row["ours"] == -0.00077
    assert row["note"] == f"{n} runs where the paper has 100: not judged"


def test_a_few_runs_without_the_metric_are_forgiven():
    assert compare_one(-0.00077, n=97)["agrees"] is True


def test_numbers_that_cannot_be_computed():
    keys = {"table": "6", "column": "m2_p_mixed", "study": "minibatch", "forget_fraction": 0.05, "n": 50, "n_paper": 50}
    both = compare_one(math.nan, note="singular fit", **keys)
    assert (both["agrees"], both["note"]) == (True, "the paper prints n/a too; singular fit")
    ours_only = compare_one(0.3, **keys)
    assert (ours_only["agrees"], ours_only["note"]) == (False, "the paper prints n/a, ours could be computed")
    theirs_only = compare_one(math.nan, note="why", **keys | {"method": "neggrad_plus"})
    assert (theirs_only["agrees"], theirs_only["note"]) == (False, "why")


def test_membership_on_tiny_forget_sets_has_more_room():
    keys = {"table": "4", "column": "mia_mean", "method": "oracle", "n": 10, "n_paper": 10}
    tiny = compare_one(0.520 + 0.045, dataset="heart_disease", **keys)
    assert (tiny["agrees"], tiny["tolerance"]) == (True, "0.05")
    large = compare_one(0.486 + 0.025, dataset="phoneme", **keys)
    assert (large["agrees"], large["tolerance"]) == (False, "0.02")


def test_every_measurable_number_has_a_tolerance_and_every_tolerance_a_number_and_a_reason():
    numbers = published_numbers()
    numbers = numbers[numbers.table.isin([*MEASURABLE, "text"])].to_dict("records")
    found = [find_tolerance(number) for number in numbers]
    assert None not in found
    assert {id(entry) for entry in found} == {id(entry) for entry in list_tolerances()}
    assert all(len(entry.reason) > 10 for entry in list_tolerances())


def test_a_number_without_a_tolerance_is_not_judged():
    row = compare_one(0.1, table="2", column="n_outputs", dataset="adult", method="", architecture="tabular_mlp",
                      forget_fraction=math.nan)  # fmt: skip
    assert pd.isna(row["agrees"])
    assert row["note"] == "no tolerance is set for this number"


def compare_diagnostics(results, *tables):
    checked = check_results(results)
    numbers = {name: as_frame(TABLES[name].compute(checked)).assign(table=name) for name in tables}
    comparison = compare_numbers(numbers)
    comparison = comparison[comparison.table.isin(tables)]
    return comparison[comparison.study.isin(DIAGNOSTIC_STUDIES) & (comparison.table != "2")]


def test_the_papers_own_diagnostic_numbers_agree_everywhere(diagnostics):
    compared = compare_diagnostics(diagnostics, "12", "13", "14", "text")
    assert len(compared) == 30 + 60 + 30 + 16
    assert compared.agrees.all()


def test_a_mean_of_five_agrees_within_the_standard_error_of_both(diagnostics):
    place = {"dataset": "cifar10", "architecture": "small_cnn", "method": "original"}
    where = diagnostics[list(place)].eq(pd.Series(place)).all(axis=1)
    limit = 2.31 * 0.0211 * math.sqrt(2 / 5) + 0.00005  # published and our SD are equal here
    start = diagnostics.loc[where, "m4"].copy()
    for shift, agrees in ((0.99 * limit, True), (1.01 * limit, False), (-1.01 * limit, False)):
        diagnostics.loc[where, "m4"] = start + shift
        compared = compare_diagnostics(diagnostics, "13")
        [row] = compared[compared.row.eq("cifar10, small_cnn, original, 5%") & compared.column.eq("m4_mean")].to_dict(
            "records"
        )
        assert row["agrees"] is agrees
        assert row["tolerance"] == f"{limit:.3g}: 2.31 standard errors"


def test_where_the_paper_has_no_sd_ours_is_pooled_over_the_methods_conditions_at_that_fraction(diagnostics):
    is_scrub = (diagnostics.study == "large-tabular") & (diagnostics.method == "scrub")
    is_one = is_scrub & (diagnostics.dataset == "higgs") & (diagnostics.architecture == "tabular_mlp")
    diagnostics.loc[is_one, "m4"] = 0.502  # five equal runs: their own spread would allow nothing
    compared = compare_diagnostics(diagnostics, "12")
    [tolerance] = compared[compared.row.eq("higgs, tabular_mlp, scrub, 5%")].tolerance
    pooled = 0.01 * math.sqrt(5 / 6)
    assert tolerance.startswith(f"{2.31 * pooled * math.sqrt(2 / 5) + 0.0005:.3g}:")


def test_a_wide_spread_at_one_forget_fraction_gives_no_room_at_another(diagnostics):
    def find_tolerance():
        compared = compare_diagnostics(diagnostics, "text")
        is_asked = compared.row.str.contains("mtsamples, bert_mlm, neggrad_plus, 5%") & compared.column.eq("m2_mean")
        [tolerance] = compared[is_asked].tolerance
        return tolerance

    before = find_tolerance()
    is_other = (diagnostics.study == "clinical") & (diagnostics.method == "neggrad_plus")
    diagnostics.loc[is_other & (diagnostics.forget_fraction == 0.01), "m2"] *= 100
    assert find_tolerance() == before
    diagnostics.loc[is_other & (diagnostics.forget_fraction == 0.05), "m2"] *= 100
    assert find_tolerance() != before


@pytest.mark.parametrize(("factor", "agrees"), [(3.0, True), (1 / 3.0, True), (3.3, False), (1 / 3.3, False)])
def test_a_spread_agrees_within_a_factor(diagnostics, factor, agrees):
    where = (diagnostics.study == "faces") & (diagnostics.method == "scrub") & (diagnostics.forget_fraction == 0.05)
    diagnostics.loc[where, "m4"] = 0.59 + factor * (diagnostics.loc[where, "m4"] - 0.59)
    compared = compare_diagnostics(diagnostics, "14")
    [row] = compared[compared.row.eq("lfw, resnet18, scrub, 5%") & compared.column.eq("m4_sd")].to_dict("records")
    assert (row["agrees"], row["tolerance"]) == (agrees, "factor 3.1")


def test_fewer_seeds_of_a_diagnostic_study_are_not_judged(diagnostics):
    compared = compare_diagnostics(diagnostics[diagnostics.seed < 3], "12", "13", "14", "text")
    assert compared.agrees.isna().all()
    assert "3 runs where the paper has 5" in compared.note.iloc[0]


def test_a_smoke_run_is_shown_and_not_judged(diagnostics):
    compared = compare_diagnostics(diagnostics.assign(size="smoke"), "12", "13", "14", "text")
    assert compared.agrees.isna().all()
    assert compared.ours.notna().all()
    assert compared.note.str.startswith("a smoke run: not judged").all()


def test_higgs_says_beside_every_number_that_it_is_smaller(diagnostics):
    tables = ("12", "text")
    compared = compare_diagnostics(diagnostics, *tables).query("dataset == 'higgs'")
    assert compared.note.eq("about 51,200 rows, not 100,000").all()
    diagnostics.loc[diagnostics.dataset == "higgs", "n_forget"] = 4000
    assert compare_diagnostics(diagnostics, *tables).query("dataset == 'higgs'").note.eq("").all()


def test_limits():
    assert Tolerance("a", "", absolute=0.1, relative=0.5).limit(-1.0) == 0.5
    assert Tolerance("a", "", absolute=0.1, relative=0.5).limit(0.0) == 0.1
    assert str(Tolerance("a", "")) == "exact"
    assert np.isclose(Tolerance("a", "").limit(3.0), 0.0)
