"""Tables 1 to 11, and the numbers that the text states of the same studies."""

import numpy as np
import pytest
import scipy.stats
from tests.paper.tables.cases import compute, identities, runs, value

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.published import load_table
from ruler.paper.results import DIAGNOSTIC_STUDIES, PAPER_DATASETS, check_results
from ruler.paper.tables import compute_numbers
from ruler.paper.tables.numbers import KEYS
from ruler.stats import fit_random_intercept

PRINTED = ("1", "3", "4", "5", "6", "7", "8", "9", "10", "11")


@pytest.fixture(scope="module")
def numbers(full_numbers):
    return full_numbers


@pytest.mark.parametrize("table", PRINTED)
def test_full_results_give_exactly_the_published_numbers(numbers, table):
    ours, paper = numbers[table], load_table(table)
    assert not ours.duplicated(["column", *KEYS]).any()
    extra = {name for name, *_ in identities(ours) - identities(paper)}
    assert identities(paper) <= identities(ours)
    # Table 5 leaves the median's p to its caption.
    assert extra == ({"m2_p_wilcoxon"} if table == "5" else set())


@pytest.mark.parametrize("table", [*PRINTED, "text"])
def test_full_results_have_as_many_runs_as_the_paper(numbers, table):
    assert (numbers[table].n == numbers[table].n_paper).all()


def test_table_1_against_the_tests_it_names(numbers, full_results):
    part = runs(full_results, method="scrub", forget_fraction=0.05)
    keys = {"method": "scrub", "forget_fraction": 0.05}
    assert value(numbers, "1", "m2_mean", **keys) == pytest.approx(part.m2.mean())
    fit = fit_random_intercept(part.m4, part.dataset.to_numpy(dtype=str), 0.5)
    assert value(numbers, "1", "m4_p_mixed", **keys) == pytest.approx(fit.p_value)
    w = scipy.stats.wilcoxon(part.m4 - 0.5).statistic
    assert value(numbers, "1", "m4_rank_biserial", **keys) == pytest.approx(1 - 4 * w / (100 * 101))


def test_table_3_takes_all_runs_and_table_4_one_dataset(numbers, full_results):
    part = runs(full_results, method="neggrad_plus", forget_fraction=0.1)
    keys = {"method": "neggrad_plus", "forget_fraction": 0.1}
    assert value(numbers, "3", "test_accuracy_mean", **keys) == pytest.approx(part.test_accuracy.mean())
    assert value(numbers, "3", "mia_sd", **keys) == pytest.approx(part.mia.std(ddof=1))
    oracle = runs(full_results, method="oracle", forget_fraction=0.1, dataset="magic")
    found = value(numbers, "4", "mia_mean", method="oracle", forget_fraction=0.1, dataset="magic")
    assert len(oracle) == 10
    assert found == pytest.approx(oracle.mia.mean())


def test_table_5_reads_both_baselines(numbers, full_results):
    part = runs(full_results, method="scrub", forget_fraction=0.01)
    keys = {"method": "scrub", "forget_fraction": 0.01}
    assert value(numbers, "5", "m2_mean", baseline="median", **keys) == pytest.approx(part.m2.mean())
    assert value(numbers, "5", "m2_mean", baseline="mean", **keys) == pytest.approx(part.m2_mean_baseline.mean())
    p = scipy.stats.wilcoxon(part.m2_mean_baseline).pvalue
    assert value(numbers, "5", "m2_p_wilcoxon", baseline="mean", **keys) == pytest.approx(p)


def test_table_6_gives_no_mixed_p_where_the_fit_is_singular(results):
    rng = np.random.default_rng(1)
    is_mini = results.study == "minibatch"
    for index in results[is_mini].groupby(["method", "dataset"]).groups.values():
        drawn = rng.normal(size=len(index))
        results.loc[index, "m2"] = 0.005 + 0.01 * (drawn - drawn.mean())
    found = compute(results, "6")["6"]
    singular = found[found.column == "m2_p_mixed"]
    assert singular.value.isna().all()
    assert singular.note.str.contains("singular").all()
    assert found[found.column == "m2_p_wilcoxon"].value.notna().all()
    assert found[found.column == "m4_p_mixed"].value.notna().all()


def test_tables_7_and_8_count_the_rates_at_which_the_criterion_holds(results):
    where = (results.study == "learning-rate") & (results.dataset == "adult") & (results.method == "scrub")
    results.loc[where, "m2"] = -0.001
    results.loc[where, "m4"] = 0.51
    results.loc[where & (results.learning_rate == 1e-3), "m4"] = 0.5
    results.loc[where & (results.learning_rate == 1e-4), "m2"] = 0.0
    found = compute(results, "7", "8")
    assert value(found, "7", "n_holds", dataset="adult", method="scrub") == 1
    assert set(found["7"].dataset) == set(PAPER_DATASETS[:5])
    assert set(found["8"].dataset) == set(PAPER_DATASETS[5:])


def test_table_9_is_the_median_over_methods_of_the_sd_of_five_means(numbers, full_results):
    part = runs(full_results, "forget-seeds", dataset="phoneme", forget_fraction=0.1)
    means = part.pivot_table(index="forget_seed", columns="method", values="m4", aggfunc="mean")
    keys = {"dataset": "phoneme", "forget_fraction": 0.1}
    assert value(numbers, "9", "m4_seed_sd", **keys) == pytest.approx(np.median(means.std(ddof=1)))
    negative = (part.pivot_table(index="forget_seed", columns="method", values="m2", aggfunc="mean") < 0).to_numpy()
    assert value(numbers, "9", "m2_n_negative", **keys) == negative.sum()
    assert value(numbers, "9", "n_forget", **keys) == 432


def test_tables_10_and_11_use_dataset_means_and_the_first_teacher(results):
    later = (results.study == "bad-teacher") & (results.teacher_seed != 100)
    results.loc[later, ["m2", "m4"]] = 7.0
    found = compute(results, "10", "11")
    keys = {"method": "bad_teacher", "forget_fraction": 0.05}
    teacher = runs(results, "bad-teacher", forget_fraction=0.05, teacher_seed=100).groupby("dataset").m4.mean()
    p = scipy.stats.wilcoxon(teacher - 0.5, method="exact").pvalue
    assert value(found, "10", "m4_mean", **keys) == pytest.approx(teacher.mean())
    assert value(found, "10", "m4_p_wilcoxon_datasets", **keys) == pytest.approx(p)
    other = runs(results, method="scrub", forget_fraction=0.05).groupby("dataset").m4.mean()
    keys = {"method": "scrub", "forget_fraction": 0.05}
    assert value(found, "11", "m4_difference", **keys) == pytest.approx((teacher - other).mean())
    paired = scipy.stats.wilcoxon(teacher, other, method="exact").pvalue
    assert value(found, "11", "m4_p_paired", **keys) == pytest.approx(paired)


def test_methods_are_compared_in_24_tests(numbers):
    frame = numbers["methods"]
    adjusted = frame[frame.column.str.endswith("_p_adjusted")]
    raw = frame[frame.column.str.endswith("_p_paired")]
    assert len(adjusted) == len(raw) == 24
    expected = scipy.stats.false_discovery_control(raw.value)
    np.testing.assert_allclose(adjusted.value, expected)


@pytest.mark.parametrize(
    "study", ["primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds"]
)
def test_one_study_alone_gives_its_own_tables(results, study):
    found = compute_numbers(check_results(results[results.study == study]))
    filled = {name for name in PRINTED if len(found[name])}
    assert (
        filled
        == {
            "primary": {"1", "3", "4", "5"},
            "bad-teacher": {"10"},  # Table 11 needs both studies
            "oracle-null": set(),
            "minibatch": {"6"},
            "learning-rate": {"7", "8"},
            "forget-seeds": {"9"},
        }[study]
    )


def test_bad_teacher_on_other_datasets_cannot_be_paired(results):
    is_teacher = results.study == "bad-teacher"
    some = results[(is_teacher & (results.dataset == "adult")) | (~is_teacher & (results.dataset == "magic"))]
    found = compute(some, "11")["11"]
    paired = found[found.column == "m4_p_paired"]
    assert paired.value.isna().all()
    assert paired.note.unique().tolist() == ["no dataset has runs of both methods"]


def test_methods_of_the_tables_are_those_of_the_paper(numbers):
    assert set(numbers["1"].method) == set(APPROXIMATE_METHODS)
    assert set(numbers["4"].method) == {*APPROXIMATE_METHODS, "oracle"}
    assert set(numbers["10"].method) == {*APPROXIMATE_METHODS, "bad_teacher"}


def test_full_results_give_every_tabular_number_of_the_text(numbers):
    missing = identities(load_table("text")) - identities(numbers["text"])
    assert {study for _, study, *_ in missing} == set(DIAGNOSTIC_STUDIES)


def test_counts_of_the_text(results):
    primary = results.study == "primary"
    results.loc[primary & (results.method == "scrub"), "m2"] = 1.0
    results.loc[primary & (results.dataset == "adult") & (results.method == "scrub"), "m3"] = 1.0
    results.loc[primary & (results.dataset != "adult"), "m3"] = -1.0
    found = compute(results, "text")
    assert value(found, "text", "m2_n_negative_conditions") == 9
    assert value(found, "text", "m3_n_datasets_all_methods_negative") == 9
    assert value(found, "text", "m2_n_pairs") == 450
    assert value(found, "text", "n_runs") == 3000


def test_teacher_variation_is_the_largest_range_of_dataset_means(results):
    teacher = results.study == "bad-teacher"
    results.loc[teacher, "m4"] = 0.5
    moved = teacher & (results.dataset == "magic") & (results.forget_fraction == 0.1) & (results.teacher_seed == 102)
    results.loc[moved, "m4"] = 0.52
    results.loc[moved & (results.seed == 0), "m2"] = 9.0
    found = compute(results, "text")
    assert value(found, "text", "m4_teacher_variation") == pytest.approx(0.02)
    column = "m2_n_datasets_negative_all_teachers"
    assert value(found, "text", column, forget_fraction=0.1) == 9
    assert value(found, "text", column, forget_fraction=0.05) == 10
