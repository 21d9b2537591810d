import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import InputError
from ruler.experiment.rows import LATER_COLUMNS
from ruler.paper.results import (
    average_seeds,
    check_results,
    count_values,
    gather_conditions,
    rows_of,
    split_by,
)


def test_a_missing_column_is_named(results):
    with pytest.raises(InputError, match="got none named m4, engine"):
        check_results(results.drop(columns=["m4", "engine"]))


def test_a_cell_twice_would_count_twice_and_is_refused(results):
    with pytest.raises(InputError, match="each cell once; got 2 of"):
        check_results(pd.concat([results, results.head(2)]))


def test_numbers_become_floats_and_keys_are_rounded(results):
    some = results.head(3).assign(forget_fraction=[0.1 + 1e-16, 0.3 - 0.2, 0.1], seed=[0, 1, 2], batch_size=None)
    checked = check_results(some)
    assert checked.forget_fraction.tolist() == [0.1, 0.1, 0.1]
    assert checked.batch_size.dtype == np.float64


def test_results_of_before_the_diagnostic_studies_get_defaults(results):
    checked = check_results(results.drop(columns=[name for name in LATER_COLUMNS if name in results]))
    assert set(checked.architecture) == {"tabular_mlp"}
    assert set(checked.forget_choice) == {"random"}
    assert set(checked["size"]) == {"full"}
    filled = ("architecture", "forget_choice", "size")
    assert checked[[name for name in LATER_COLUMNS if name not in filled]].isna().all(axis=None)
    assert checked.m4_placebo_p.dtype == np.float64


def test_old_and_new_results_join(all_results):
    checked = check_results(all_results)
    assert checked.architecture.notna().all()
    assert set(checked[checked.study == "primary"].architecture) == {"tabular_mlp"}
    assert len(checked) == len(all_results)


def test_cells_that_differ_in_model_or_choice_of_identities_are_not_the_same(diagnostics):
    assert len(check_results(diagnostics)) == len(diagnostics)
    with pytest.raises(InputError, match="each cell once"):
        check_results(diagnostics.assign(forget_choice="random"))
    with pytest.raises(InputError, match="each cell once"):
        check_results(diagnostics.assign(architecture="resnet18"))


def test_the_given_frame_is_left_alone(results):
    before = results.copy()
    check_results(results)
    pd.testing.assert_frame_equal(results, before)


def test_rows_of_a_study_and_its_methods(results):
    assert len(rows_of(results, "primary")) == 1200
    assert len(rows_of(results, "primary", ("oracle",))) == 300
    assert rows_of(results, "clinical").empty


def test_groups_come_in_the_papers_order(results):
    order = [(keys["forget_fraction"], keys["method"]) for keys, _ in split_by(rows_of(results, "primary"), *KEYS)]
    methods = ["gradient_ascent", "neggrad_plus", "fine_tuning", "scrub"]
    assert order == [(fraction, method) for fraction in (0.01, 0.05, 0.1) for method in methods]


KEYS = ("forget_fraction", "method")


def test_average_skips_runs_without_the_metric():
    rows = pd.DataFrame({"dataset": ["a", "a", "b"], "m2": [1.0, np.nan, 3.0]})
    assert average_seeds(rows, "m2", "dataset").to_dict() == {"a": 1.0, "b": 3.0}


def test_conditions_count_verdicts_and_put_the_original_first(diagnostics):
    found = gather_conditions(check_results(diagnostics), "faces")
    assert found.method.tolist()[:3] == ["original", "gradient_ascent", "neggrad_plus"]
    assert len(found) == 3 * 7
    assert set(found[found.method == "scrub"].verdict) == {"residual 4, inconclusive 1"}
    assert set(found[found.method == "oracle"].verdict) == {""}
    np.testing.assert_allclose(found.m4_p_value_median, 0.03)


def test_equal_counts_stand_in_the_order_of_their_names():
    assert count_values(pd.Series(["b", "a", None, "c", "c"])) == "c 2, a 1, b 1"


def test_a_model_that_lost_its_accuracy_is_called_broken(diagnostics):
    is_chosen = (diagnostics.study == "images") & (diagnostics.method == "gradient_ascent")
    lost = diagnostics.assign(retain_accuracy=np.where(is_chosen, 0.1, 0.9))
    conditions = gather_conditions(check_results(lost), "images")
    assert set(conditions[conditions.is_broken].method) == {"gradient_ascent"}
    without = lost[(lost.method != "original") | (lost.study != "images")]
    assert not gather_conditions(check_results(without), "images").is_broken.any()  # nothing to compare it with


def test_a_study_that_was_not_run_has_no_conditions(results):
    assert gather_conditions(check_results(results), "faces").empty
