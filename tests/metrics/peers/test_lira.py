import math

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy, norm
from tests.metrics.peers.answers import draw_answers

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.metrics.outputs import margins
from ruler.metrics.peers.klom import klom
from ruler.metrics.peers.lira import lira, u_lira
from ruler.metrics.peers.rmia import rmia

OWN = draw_answers(seed=0)
SEEN = [draw_answers(seed=seed, scale=4.0) for seed in range(1, 7)]
UNSEEN = [draw_answers(seed=seed) for seed in range(11, 19)]


def true_shares(predictions):
    return softmax(predictions.logits, axis=1)[np.arange(len(predictions)), predictions.labels]


def test_margins_are_log_odds_and_do_not_overflow():
    shares = true_shares(OWN)
    np.testing.assert_allclose(margins(OWN), np.log(shares / (1 - shares)))
    assert margins(Predictions(np.array([[800.0, 0.0]]), np.array([0]))).tolist() == [800.0]


def test_lira_is_a_ratio_of_normal_densities():
    table = [[margins(one) for one in models] for models in (SEEN, UNSEEN)]
    densities = [norm.logpdf(margins(OWN), np.mean(one, axis=0), np.std(one, axis=0, ddof=1)) for one in table]
    for compute in (lira, u_lira):
        found = compute(OWN, SEEN, UNSEEN)
        np.testing.assert_allclose(found.records, densities[0] - densities[1])
        assert found.value == np.mean(found.records > 0)
    assert "at least 2 models on each side, since they scatter; got 1" in lira(OWN, SEEN[:1], UNSEEN).reason
    with pytest.raises(InputError, match="the same 30 records"):
        lira(OWN, [draw_answers(n=29)] * 2, UNSEEN)


def test_lira_tells_members_from_strangers():
    def answer(mean, seed):
        logits = np.random.default_rng(seed).normal([mean, 0.0], 1.0, size=(200, 2))
        return Predictions(logits, np.zeros(200, dtype=np.int64))

    seen, unseen = [[answer(mean, 10 * mean + seed) for seed in range(8)] for mean in (6, 0)]
    assert lira(answer(6, 99), seen, unseen).value > 0.95
    assert lira(answer(0, 98), seen, unseen).value < 0.05


def test_klom_is_the_divergence_of_histograms():
    own, other = (np.array([margins(one) for one in models]) for models in (SEEN, UNSEEN))
    expected = []
    for column in range(30):
        edges = np.linspace(
            min(own[:, column].min(), other[:, column].min()), max(own[:, column].max(), other[:, column].max()), 21
        )
        p, q = (np.histogram(one[:, column], edges)[0] for one in (own, other))
        expected.append(min(12, entropy(p, q)))
    np.testing.assert_allclose(klom(SEEN, UNSEEN, least=6).records, expected)
    assert klom(UNSEEN, UNSEEN, least=1).value == 0
    assert klom(SEEN, UNSEEN).reason == "It needs at least 10 models on each side; got 6."
    assert "at least 1 models" in klom([], UNSEEN, least=0).reason
    with pytest.raises(InputError, match="same records"):
        klom(SEEN, [draw_answers(n=29)], least=1)


def test_rmia_counts_the_population_that_is_beaten():
    held_out, references = draw_answers(n=20, seed=30, labels_seed=8), UNSEEN[:3]
    others = [draw_answers(n=20, seed=seed, labels_seed=8) for seed in (31, 32, 33)]
    own = true_shares(OWN) / np.mean([true_shares(one) for one in references], axis=0)
    population = true_shares(held_out) / np.mean([true_shares(one) for one in others], axis=0)
    for threshold in (1.0, 2.0):
        expected = [np.mean(ratio / population > threshold) for ratio in own]
        np.testing.assert_allclose(rmia(OWN, held_out, references, others, threshold=threshold).records, expected)
    assert (
        rmia(OWN, held_out, [], others).reason == "It needs at least 1 model that never saw the forget records; got 0."
    )
    with pytest.raises(InputError, match="oracles must each have the same 30 records"):
        rmia(OWN, held_out, others, references)


def test_rmia_of_records_like_the_population_is_a_half():
    same = draw_answers(n=400, seed=1), draw_answers(n=400, seed=2)
    references = [draw_answers(n=400, seed=seed) for seed in (3, 4)]
    assert rmia(*same, references, references).value == pytest.approx(0.5, abs=0.05)
    assert rmia(same[0], same[0], references, references).value == pytest.approx(0.5)
    assert not math.isnan(rmia(*same, references, references).value)


def answer_with(*margins_wanted):
    return [Predictions(np.array([[margin, 0.0]]), np.array([0])) for margin in margins_wanted]


def test_klom_has_twenty_bins():
    """0.049 lies in the first of 20 bins from 0 to 1, beside one of two oracles; of 21 it would lie in the second."""
    assert klom(answer_with(0.049), answer_with(0.0, 1.0), least=1).value == pytest.approx(math.log(2))
    assert klom(answer_with(0.051), answer_with(0.0, 1.0), least=1).value == 12


def test_rmia_takes_the_mean_of_oracles_however_many_there_are():
    own, held_out = draw_answers(seed=0), draw_answers(seed=5)
    expected = rmia(own, held_out, UNSEEN[:1], UNSEEN[1:2])
    assert rmia(own, held_out, UNSEEN[:1], UNSEEN[1:2] * 3).value == pytest.approx(expected.value)
