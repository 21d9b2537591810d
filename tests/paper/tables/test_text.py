"""The numbers that the paper's text states."""

import pytest
from tests.paper.tables.cases import compute, identities, value

from ruler.paper.published import load_table
from ruler.paper.results import DIAGNOSTIC_STUDIES


@pytest.fixture(scope="module")
def numbers(full_numbers):
    return full_numbers


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
