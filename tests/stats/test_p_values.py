import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.stats.p_values import adjust_p_values, conformal_p_values, holm


def test_p_values_are_valid_for_exchangeable_records():
    rng = np.random.default_rng(0)
    p_values = np.concatenate([conformal_p_values(rng.normal(size=20), rng.normal(size=99)) for _ in range(200)])
    assert np.mean(p_values <= 0.1) == pytest.approx(0.1, abs=0.02)
    assert p_values.min() >= 0.02 - 1e-12


def test_both_tails_stand_out():
    control = np.linspace(0, 1, 99)
    assert conformal_p_values([-1.0, 2.0, 0.5], control).round(3).tolist() == [0.02, 0.02, 1.0]


def test_the_low_tail_alone_has_twice_the_resolution():
    control = np.linspace(0, 1, 99)
    assert conformal_p_values([-1.0, 2.0], control, tail="low").tolist() == [0.01, 1.0]


def test_ties_count_on_both_sides():
    assert conformal_p_values([1.0], np.ones(9)).tolist() == [1.0]


def test_control_must_not_be_empty():
    with pytest.raises(InputError, match="control must be one-dimensional with at least one value"):
        conformal_p_values([1.0], [])


def test_equals_the_definition():
    # Benjamini and Hochberg (1995), section 3.2: fifteen p-values, four rejected at q = 0.05
    raw = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    raw += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    adjusted = adjust_p_values(raw)
    by_hand = [min(raw[j] * 15 / (j + 1) for j in range(i, 15)) for i in range(15)]
    np.testing.assert_allclose(adjusted, by_hand, rtol=1e-12)
    assert (adjusted <= 0.05).sum() == 4


def test_order_is_kept():
    np.testing.assert_allclose(adjust_p_values([0.5, 0.01]), [0.5, 0.02])


def test_tests_not_made_stay_out():
    np.testing.assert_allclose(adjust_p_values([np.nan, 0.5, 0.01]), [np.nan, 0.5, 0.02])
    assert np.isnan(adjust_p_values([np.nan])).all()
    assert adjust_p_values([]).shape == (0,)


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match=r"p_values must lie in \[0, 1\]; got \[0\.2, 1\.5\]"):
        adjust_p_values([0.2, 1.5, np.nan])
    with pytest.raises(InputError, match="p_values must be one-dimensional; got shape \\(1, 2\\)"):
        adjust_p_values([[0.1, 0.2]])


@pytest.mark.parametrize(
    "p_values", [[0.04, 0.001, 0.03, 0.9], [0.5, 0.6], [0.2], [0.01, 0.01, 0.01], [0.03, 0.02, 0.04, 0.0]]
)
def test_holm_and_benjamini_hochberg_are_those_of_statsmodels(p_values):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    assert holm(p_values) == pytest.approx(multitest.multipletests(p_values, method="holm")[1])
    assert adjust_p_values(p_values) == pytest.approx(multitest.multipletests(p_values, method="fdr_bh")[1])


def test_holm_of_nothing_is_nothing():
    assert holm([]).shape == (0,)
