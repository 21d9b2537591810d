"""What an attacker achieves with the best contrast."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.stats import binomtest
from tests.auditing.cases import FAST, SOUND
from tests.auditing.report.factory import make_report

from ruler.auditing import gather_evidence
from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.measure import Measurement, measure_contrasts
from ruler.auditing.privacy import measure_privacy, trace_roc
from ruler.auditing.strands import Strand
from ruler.stats import measure_effect


def test_epsilon_proves_nothing_where_nothing_leaks_and_something_where_all_does(build_world):
    settings = replace(FAST, n_permutations=99)
    found = []
    for seed in range(30):
        world = build_world(seed, sizes=(60, 80, 120))
        evidence = gather_evidence(world.model(gain=0.0), oracle=world.model(gain=0.0), settings=settings)
        found.append(measure_privacy(evidence, measure_contrasts(evidence)).epsilon)
    assert np.mean(np.array(found) == 0) >= 0.9
    world = build_world(0)
    evidence = gather_evidence(world.model(1.0, gain=1.0), oracle=world.model(gain=0.0), settings=settings)
    leak = measure_privacy(evidence, measure_contrasts(evidence))
    assert leak.epsilon > 0.5
    assert leak.true_positive_rate > 0.3
    assert leak.true_positive_interval[0] < leak.true_positive_rate < leak.true_positive_interval[1]


def measure(forget, held_out):
    """A deciding contrast with these scores."""
    now = np.concatenate([forget, held_out]).astype(float)
    strand = Strand("m2", "", len(forget), now, None, {}, {}, None, None)
    return {"m2": Measurement(CONTRASTS["m2"], {"": {}}, [strand], make_report().metrics["m2"])}


@pytest.fixture
def evidence():
    return gather_evidence(SOUND)


def bound(count, n, level):
    """Clopper and Pearson's bounds, each of this level."""
    return binomtest(count, n).proportion_ci(1 - 2 * level, method="exact")


def test_epsilon_is_proved_by_the_half_that_chose_nothing(evidence):
    found = measure_privacy(evidence, measure(np.arange(40) + 1000, np.arange(80)))
    level = 0.05 / 4  # two rates, two ratios
    positive = bound(20, 20, level).low / bound(0, 40, level).high
    negative = bound(40, 40, level).low / bound(0, 20, level).high
    assert found.epsilon == pytest.approx(np.log(max(positive, negative)))
    mirrored = measure_privacy(evidence, measure(-np.arange(40) - 1000, np.arange(80)))
    assert mirrored.epsilon == pytest.approx(found.epsilon)


def test_epsilon_counts_hits_and_alarms_at_the_chosen_threshold(evidence):
    # every other record chooses, and there all forget records lie above; of the rest 12 of 20 do, and 3 of 40 held-out
    forget, held_out = np.full(40, 10.0), np.zeros(80)
    forget[1::2][:8], held_out[1::2][:3] = -1.0, 11.0
    found = measure_privacy(evidence, measure(forget, held_out))
    level = 0.05 / 4
    positive = bound(12, 20, level).low / bound(3, 40, level).high
    negative = bound(37, 40, level).low / bound(8, 20, level).high
    assert found.epsilon == pytest.approx(np.log(max(positive, negative)))


def test_four_records_on_a_side_are_the_fewest(evidence):
    assert measure_privacy(evidence, measure(np.arange(4), np.arange(4))) is not None
    assert measure_privacy(evidence, measure(np.arange(3), np.arange(9))) is None
    assert measure_privacy(evidence, measure(np.arange(9), np.arange(3))) is None
    assert measure_privacy(evidence, {}) is None


@pytest.mark.parametrize(("n_held_out", "n_allowed"), [(100, 1), (199, 1), (200, 2)])
def test_true_positives_are_counted_above_one_in_a_hundred_false_ones(evidence, n_held_out, n_allowed):
    held_out = np.arange(n_held_out)
    forget = np.repeat([n_held_out - 1 - n_allowed, n_held_out - 0.5 - n_allowed, 10 * n_held_out], 5)
    found = measure_privacy(evidence, measure(forget, held_out))
    assert found.true_positive_rate == pytest.approx(10 / 15)
    assert found.true_positive_interval == pytest.approx(tuple(bound(10, 15, 0.025)))


def test_fewer_than_a_hundred_held_out_records_tell_no_rate(evidence):
    found = measure_privacy(evidence, measure(np.arange(20), np.arange(99)))
    assert np.isnan([found.true_positive_rate, *found.true_positive_interval]).all()


def test_without_a_side_high_scores_are_called(evidence):
    # an AUC of exactly 1/2: two records above all, four above a quarter of the held-out ones
    found = measure_privacy(evidence, measure([1e3, 1e3, 24.5, 24.5, 24.5, 24.5], np.arange(100)))
    assert found.true_positive_rate == pytest.approx(2 / 6)
    (false, true) = trace_roc(measure([1e3, 1e3, 24.5, 24.5, 24.5, 24.5], np.arange(100)))["m2"]
    assert true[false == 0].max() == pytest.approx(2 / 6)


@pytest.mark.parametrize("shift", [-1.0, 1.0])
@pytest.mark.parametrize("n", [20, 300])
def test_the_area_under_the_curve_is_the_auc_on_its_own_side(random, shift, n):
    forget, held_out = random.normal(size=n) + shift, random.normal(size=2 * n)
    false, true = trace_roc(measure(forget, held_out))["m2"]
    assert len(false) == len(true) == min(200, 3 * n + 1)
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)
    auc = measure_effect(forget, held_out).value
    assert trapezoid(true, false) == pytest.approx(max(auc, 1 - auc), abs=1e-9 if n == 20 else 0.01)


def test_contrasts_without_a_control_have_no_curve():
    assert trace_roc({"m2": replace(measure([1.0], [2.0])["m2"], strands=[])}) == {}


@pytest.mark.parametrize("n_hits", [0, 1, 15])
def test_few_and_all_hits_have_clopper_and_pearsons_interval(evidence, n_hits):
    # the rest lies where half of the held-out records do, so that the side is the upper one
    forget = np.concatenate([np.full(n_hits, 1e3), np.full(15 - n_hits, 99.6)])
    found = measure_privacy(evidence, measure(forget, np.arange(200)))
    assert found.true_positive_rate == pytest.approx(n_hits / 15)
    assert found.true_positive_interval == pytest.approx(tuple(bound(n_hits, 15, 0.025)))
