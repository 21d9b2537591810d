import numpy as np
import pytest

from ruler.paper.plan import compare_with_plan, list_missing
from ruler.paper.results import check_results


@pytest.fixture(scope="module")
def whole(all_results):
    return check_results(all_results)


def list_rows(results):
    return [line for line in list_missing(results) if line.startswith("| ") and "---" not in line][1:]


def count(results, study):
    runs = results[results.study == study]
    return compare_with_plan(study, runs).count(len(runs))


def test_whole_studies_lack_nothing(whole):
    assert list_missing(whole) == []
    assert count(whole, "primary") == "1800"


def test_a_method_that_was_not_run_everywhere_is_listed(whole):
    is_left_out = (whole.method == "bad_teacher") & whole.dataset.isin(["cifar100", "mtsamples"])
    some = whole[~is_left_out]
    assert list_rows(some) == [
        "| images | CIFAR-100 | Three-layer CNN, ResNet-18 | Bad Teacher | 5% | 0 to 4 | 10 |",
        "| clinical | MTSamples | BERT, masked words | Bad Teacher | 1%, 5%, 10% | 0 to 4 | 15 |",
    ]
    assert (count(some, "images"), count(some, "clinical")) == ("200 of 210", "120 of 135")


def test_a_narrowed_study_takes_a_line_for_each_way_it_was_narrowed(whole):
    some = whole[(whole.study == "primary") & (whole.dataset == "breast_cancer") & (whole.seed < 2)]
    methods = "Gradient Ascent, NegGrad+, Fine-Tuning, SCRUB, Oracle, Original"
    assert list_rows(some) == [
        f"| primary | 9 datasets | MLP | {methods} | 1%, 5%, 10% | 0 to 9 | 1620 |",
        f"| primary | Breast Cancer | MLP | {methods} | 1%, 5%, 10% | 2 to 9 | 144 |",
    ]
    assert "not asked for or not finished" in list_missing(some)[0]


def test_gaps_of_different_kinds_are_not_merged(whole):
    is_first = (whole.architecture == "small_cnn") & (whole.method == "scrub") & (whole.seed == 3)
    is_second = (whole.architecture == "resnet18") & (whole.method == "oracle") & whole.seed.isin([0, 2])
    some = whole[(whole.study == "images") & ~((whole.dataset == "svhn") & (is_first | is_second))]
    assert sorted(list_rows(some)) == [
        "| images | SVHN | ResNet-18 | Oracle | 5% | 0, 2 | 2 |",
        "| images | SVHN | Three-layer CNN | SCRUB | 5% | 3 | 1 |",
    ]


def test_forgotten_groups_are_named_by_their_choice(whole):
    some = whole[(whole.study == "faces") & (whole.forget_choice == "random") & (whole.forget_fraction < 0.1)]
    rows = list_rows(some)
    assert rows[0].startswith(
        "| faces | LFW | ResNet-18 | Gradient Ascent, NegGrad+, Fine-Tuning, SCRUB, Bad Teacher | 10%"
    )
    assert rows[1:] == [
        "| faces | LFW | ResNet-18 | Oracle, Original | 10%, most frequent, one alone, two alone | 0 to 4 | 40 |"
    ]


def test_pairs_of_oracles_name_both_seeds(whole):
    some = whole[(whole.study == "oracle-null") & (whole.other_seed < 9)]
    assert list_rows(some) == ["| oracle-null | 10 datasets | MLP | Oracle | 5% | 0 to 9 | 90 |"]


def test_rows_beyond_the_plan_do_not_stand_for_planned_ones(whole):
    primary = whole[whole.study == "primary"]
    moved = primary.assign(forget_fraction=primary.forget_fraction.replace(0.1, 0.2))
    assert count(moved, "primary") == "1200 of 1800, 600 beyond them"
    [row] = list_rows(moved)
    assert row.endswith("| 10% | 0 to 9 | 600 |")


def test_engine_and_precision_do_not_tell_cells_apart(whole):
    assert list_missing(whole.assign(engine="ensemble", precision="float32")) == []


def test_neither_a_smoke_run_nor_a_study_of_ones_own_has_a_plan(whole):
    few = whole[(whole.study == "images") & (whole.seed == 0)]
    assert list_missing(few.assign(size="smoke")) == []
    assert count(few.assign(size="smoke"), "images") == "42"
    own = few.assign(study="mine", teacher_seed=np.nan)
    assert list_missing(own) == []
    assert count(own, "mine") == "42"
