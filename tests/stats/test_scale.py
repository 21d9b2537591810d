"""How much remains: labellings, families of tests, and intervals of ratios, against enumeration and by definition."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom, t
from tests.stats.coverage import PEOPLE, SIZES, TRUTHS, count_covered, count_covered_of_groups

from ruler.stats import scale
from ruler.stats.scale import (
    RunError,
    correct_families,
    relabel,
    share_of_members,
    share_of_original,
    shares_of_single,
)

ALPHA = 0.05


def list_all(scores, n):
    """Differences of means for every labelling, (n_labellings, n_scores)."""
    labels = np.array(
        [np.isin(np.arange(scores.shape[1]), chosen) for chosen in combinations(range(scores.shape[1]), n)]
    )
    return (labels @ scores.T) / n - (~labels @ scores.T) / (scores.shape[1] - n)


def draw_scores(seed, n, m, n_scores=2, effect=0.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_scores, n + m)) + np.outer(np.full(n_scores, effect), np.arange(n + m) < n)


# relabel


@pytest.mark.parametrize(("n", "m"), [(1, 6), (2, 5), (4, 4), (5, 2)])
def test_few_labellings_are_all_counted(n, m):
    scores = draw_scores(0, n, m)
    found, expected = relabel(scores, n), list_all(scores, n)
    assert found.is_exact
    assert found.n_labellings == pytest.approx(len(expected))
    assert np.sort(found.drawn, axis=0) == pytest.approx(np.sort(expected, axis=0))
    assert found.observed == pytest.approx(expected[0])
    assert found.spread == pytest.approx(np.sqrt(np.square(expected).mean(axis=0)))
    own = list_all((np.arange(n + m) < n)[None].astype(float), n)
    assert np.sort(found.kept) == pytest.approx(np.sort(own[:, 0]))


def test_random_labellings_have_the_moments_of_all():
    scores = draw_scores(1, 3, 9)
    found, expected = relabel(scores, 3, n_permutations=200), list_all(scores, 3)
    assert not found.is_exact
    assert len(found.drawn) == 200
    many = relabel(np.tile(scores, 20), 60, n_permutations=4000)
    assert many.drawn.mean(axis=0) == pytest.approx([0, 0], abs=4 * many.spread.max() / math.sqrt(4000))
    assert many.drawn.std(axis=0) == pytest.approx(many.spread, rel=0.05)
    assert found.drawn.max() <= expected.max() + 1e-12


def test_strata_keep_their_own_labels():
    strata = np.array([0, 0, 1, 1, 1, 0, 0, 2, 1])  # the first three are the first sample; 2 has none of them
    scores = np.array([10.0**strata, np.arange(9.0)])
    found = relabel(scores, 3, strata=strata, n_permutations=500)
    assert found.drawn[:, 0] == pytest.approx(found.observed[0])  # a score that only names the stratum never moves
    assert found.n_labellings == pytest.approx(math.comb(4, 2) * math.comb(4, 1))
    assert len(np.unique(found.drawn[:, 1].round(9))) > 5
    free = relabel(scores, 3, n_permutations=50)
    assert len(np.unique(free.drawn[:, 0].round(9))) > 1
    assert free.n_labellings == pytest.approx(math.comb(9, 3))


SAMPLES = [(20, 40), (900, 1500), (30, 3000), (3000, 30)]
"""Few records, many, and many of which one sample has few: their labels are drawn in other ways."""


@pytest.mark.parametrize(("n", "m"), SAMPLES)
def test_labellings_follow_from_the_seed_and_from_nothing_else(n, m, monkeypatch):
    scores, strata = draw_scores(2, n, m), np.arange(n + m) % 2
    found = relabel(scores, n, n_permutations=100, seed=5)
    assert not np.array_equal(relabel(scores, n, n_permutations=100, seed=6).drawn, found.drawn)
    alone = relabel(scores[1:], n, n_permutations=100, seed=5)
    assert alone.drawn[:, 0] == pytest.approx(found.drawn[:, 1])
    parted = relabel(scores, n, strata=strata, n_permutations=100, seed=5)
    monkeypatch.setattr(scale, "_BLOCK_ELEMENTS", 7000)
    assert relabel(scores, n, n_permutations=100, seed=5).drawn == pytest.approx(found.drawn, abs=1e-12)
    again = relabel(scores, n, strata=strata, n_permutations=100, seed=5)
    assert again.drawn == pytest.approx(parted.drawn, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), SAMPLES)
def test_every_record_is_drawn_as_often_as_any_other_and_with_any_other(n, m):
    n_draws = 3000
    rows = np.zeros((5, n + m))
    rows[range(4), [0, 1, n, -1]] = 1.0
    rows[4, ::2] = 1.0  # every other record: how many of them are drawn varies as it should
    found = relabel(rows, n, n_permutations=n_draws, seed=1)
    chosen = found.drawn[:, :4] / (1 / n + 1 / m) + n / (n + m)  # 1 where the record is in the first sample
    assert np.isin(chosen.round(6), [0, 1]).all()
    often = binom.ppf([1e-5, 1 - 1e-5], n_draws, n / (n + m))
    assert ((often[0] <= chosen.sum(axis=0)) & (chosen.sum(axis=0) <= often[1])).all()
    pairs = binom.ppf([1e-5, 1 - 1e-5], n_draws, n / (n + m) * (n - 1) / (n + m - 1))
    both = (chosen.T @ chosen)[np.triu_indices(4, 1)]
    assert ((pairs[0] <= both) & (both <= pairs[1])).all()
    assert found.drawn.std(axis=0)[4] == pytest.approx(found.spread[4], rel=0.07)
    assert found.drawn.mean(axis=0)[4] == pytest.approx(0, abs=4.5 * found.spread[4] / math.sqrt(n_draws))


def test_a_shift_of_all_scores_changes_nothing_even_at_a_great_distance():
    scores = draw_scores(3, 10, 20)
    assert relabel(scores + 1e6, 10).drawn == pytest.approx(relabel(scores, 10).drawn, abs=1e-8)


def test_some_of_the_scores_can_be_taken():
    found = relabel(draw_scores(4, 6, 9, n_scores=3), 6)
    part = found.take([2, 0])
    np.testing.assert_array_equal(part.drawn, found.drawn[:, [2, 0]])
    np.testing.assert_array_equal(part.observed, found.observed[[2, 0]])
    np.testing.assert_array_equal(part.spread, found.spread[[2, 0]])
    assert part.kept is found.kept


@pytest.mark.parametrize(("m", "can"), [(38, False), (39, True)])
def test_one_record_needs_39_others_to_reach_the_level(m, can):
    scores = draw_scores(5, 1, m)
    strata = np.zeros(m + 1, dtype=np.intp)
    assert relabel(scores, 1).can_reach(ALPHA / 2) == can
    assert relabel(scores, 1, strata=strata).can_reach(ALPHA / 2) == can


# families


def westfall_young(drawn, observed, spread, sides):
    """The step-down maximum, score by score, over a list of all labellings."""

    def turn(row):
        scaled = row / spread
        return [abs(x) if side == 0 else x * side for x, side in zip(scaled, sides, strict=True)]

    own, others = turn(observed), [turn(row) for row in drawn]
    left, found, largest = list(range(len(own))), [0.0] * len(own), 0.0
    while left:
        best = max(left, key=lambda place: own[place])
        count = sum(max(row[place] for place in left) >= own[best] - 1e-9 for row in others)
        largest = max(largest, count / len(others))
        found[best] = largest
        left.remove(best)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_families_are_corrected_as_by_the_definition(seed):
    scores = draw_scores(seed, 4, 5, n_scores=4)
    scores[0, :4] += 1.5
    scores[3] = scores[0].round()  # ties
    families, sides = [0, 0, 1, 2], [0, 1, -1, 0]
    found, drawn = relabel(scores, 4), list_all(scores, 4)
    raw, corrected = correct_families(found, families, sides)
    assert corrected == pytest.approx(westfall_young(drawn, found.observed, found.spread, sides))
    for family in range(3):
        own = [place for place, code in enumerate(families) if code == family]
        expected = westfall_young(
            drawn[:, own], found.observed[own], found.spread[own], [sides[place] for place in own]
        )
        assert raw[family] == pytest.approx(min(expected))
    assert (corrected >= raw[families] - 1e-12).all()


def test_the_chance_of_any_false_rejection_is_held():
    counts = np.zeros(2)
    n_runs = 600
    for seed in range(n_runs):
        scores = draw_scores(seed, 8, 16, n_scores=5)
        scores[3] = scores[0] + 0.1 * scores[3]  # near copies cost hardly anything
        if seed % 2:
            scores[4, :8] += 3.0  # a true difference must not loosen the others
        corrected = correct_families(
            relabel(scores, 8, n_permutations=199, seed=seed), [0, 0, 1, 1, 2], [0, 0, 1, 0, 0]
        )[1]
        counts[seed % 2] += (corrected[: 4 if seed % 2 else 5] <= ALPHA).any()
    assert (counts <= binom.ppf(0.9999, n_runs // 2, ALPHA)).all()
    assert counts.sum() >= binom.ppf(0.0001, n_runs, ALPHA / 2)


def test_scores_that_never_differ_reject_nothing():
    scores = np.array([np.ones(30), np.arange(30.0)])
    raw, corrected = correct_families(relabel(scores, 10), [0, 1], [0, 0])
    assert raw[0] == corrected[0] == 1.0
    assert corrected[1] < 0.01


# shares


def is_kept(c, now, before, n, alpha, found):
    """Whether c survives both tests of the docstring: every labelling is counted, and Student's t."""
    tested = now - c * before
    rest = len(now) - n
    distance = tested[:n].mean() - tested[n:].mean()
    error = math.sqrt(tested[n:].var(ddof=1) * (1 / n + 1 / rest))
    by_t = n > 1 and abs(distance) <= t.ppf(1 - alpha / 2, rest - 1) * error
    drawn = np.append(found.drawn @ [1.0, -c], [] if found.is_exact else [distance])
    slack = 1e-9 * (1 + abs(c))
    by_rank = min((drawn <= distance + slack).mean(), (drawn >= distance - slack).mean()) > alpha / 2
    return by_t or by_rank


@pytest.mark.parametrize(("n", "m"), [(1, 60), (2, 12), (5, 8), (5, 30), (20, 40)])
@pytest.mark.parametrize("truth", TRUTHS)
def test_the_interval_holds_every_share_that_is_not_rejected(n, m, truth):
    own, other = draw_scores([n, m], n, m)
    before = other + 8.0 * (np.arange(n + m) < n)
    now = own + 8.0 * truth * (np.arange(n + m) < n)
    found = relabel(np.array([now, before]), n, n_permutations=499)
    share = share_of_original(now, before, n, alpha=ALPHA, found=found)
    grid = np.linspace(share.low - 0.3, share.high + 0.3, 1001)
    kept = [is_kept(c, now, before, n, ALPHA, found) for c in grid]
    step = grid[1] - grid[0]
    assert share.low == pytest.approx(grid[np.argmax(kept)], abs=1.01 * step)
    assert share.high == pytest.approx(grid[::-1][np.argmax(kept[::-1])], abs=1.01 * step)
    assert share.value == pytest.approx((now[:n].mean() - now[n:].mean()) / (before[:n].mean() - before[n:].mean()))
    assert share.low <= share.value <= share.high


@pytest.mark.parametrize("seed", range(10))
def test_of_a_faint_trace_nothing_is_left_out(seed):
    now, before = draw_scores(seed, 4, 8)
    before[:4] += 1.5
    found = relabel(np.array([now, before]), 4)
    share = share_of_original(now, before, 4, alpha=ALPHA, found=found)
    grid = np.linspace(-6, 6, 241)
    assert all(share.low <= c <= share.high for c in grid if is_kept(c, now, before, 4, ALPHA, found))


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_members_share_is_that_of_scores_from_which_it_was_subtracted(truth):
    first, second = np.split(draw_scores(0, 6, 8, n_scores=1)[0], [6])
    first, members = first + 7.0 * truth, 7.0 + np.random.default_rng(1).normal(size=50)
    joined = np.append(first, second)
    found = relabel(joined[None], 6)
    share = share_of_members(first, second, members, alpha=ALPHA, found=found)
    trace = members.mean() - second.mean()
    own, theirs = second.var(ddof=1), members.var(ddof=1)
    is_first = np.arange(14) < 6

    every = list_all(np.array([joined, is_first]), 6)

    def keeps(c):
        drawn = every @ [1.0, -c * trace]
        by_rank = min((drawn <= drawn[0] + 1e-9).mean(), (drawn >= drawn[0] - 1e-9).mean()) > ALPHA / 2
        error = math.sqrt(own * (1 / 6 + 1 / 8) - 2 * c * own / 8 + c**2 * (theirs / 50 + own / 8))
        return by_rank or abs(drawn[0]) <= t.ppf(1 - ALPHA / 2, 7) * error

    grid = np.linspace(share.low - 0.2, share.high + 0.2, 801)
    kept = [keeps(c) for c in grid]
    step = grid[1] - grid[0]
    assert share.low == pytest.approx(grid[np.argmax(kept)], abs=1.01 * step)
    assert share.high == pytest.approx(grid[::-1][np.argmax(kept[::-1])], abs=1.01 * step)


def measure_both(now, before, members, n, **options):
    scores = np.array([now, before])
    found = relabel(scores, n, n_permutations=399)
    return (
        share_of_original(now, before, n, alpha=ALPHA, found=found, **options),
        share_of_members(now[:n], now[n:], members, alpha=ALPHA, found=found, **options),
    )


def list_numbers(share):
    return [share.value, share.low, share.high, share.visibility, share.resolution]


@pytest.fixture
def seen():
    """Scores of 20 records of which .3 remains and of 50 others, and of 80 members."""
    now, before = draw_scores(9, 20, 50)
    before[:20] += 6.0
    now[:20] += 2.0
    return now, before, 6.0 + np.random.default_rng(9).normal(size=80), 20


@pytest.mark.parametrize(("factor", "shift"), [(1e-6, 0.0), (3.0, 100.0), (-1.0, 0.0), (-50.0, 7.0)])
def test_the_unit_of_the_scores_does_not_matter(seen, factor, shift):
    now, before, members, n = seen
    moved = measure_both(factor * now + shift, factor * before + shift, factor * members + shift, n)
    for one, other in zip(measure_both(*seen), moved, strict=True):
        assert list_numbers(other) == pytest.approx(list_numbers(one), rel=1e-6)


def test_a_trace_below_the_others_counts_like_one_above(seen):
    now, before, members, n = seen
    one = measure_both(now, before, members, n)[0]
    low, high = measure_both(-now, before, members, n)[0], measure_both(now, -before, members, n)[0]
    assert [low.value, low.low, low.high] == pytest.approx([-one.value, -one.high, -one.low])
    assert [high.value, high.low, high.high] == pytest.approx([-one.value, -one.high, -one.low])


def test_numbers_beside_the_interval_say_what_was_seen(seen):
    now, before, members, n = seen
    original, by_members = measure_both(*seen)
    rest = len(now) - n
    trace = before[:n].mean() - before[n:].mean()
    factor = math.sqrt(1 / n + 1 / rest)
    assert original.visibility == pytest.approx(trace / (before[n:].std(ddof=1) * factor))
    assert original.resolution == pytest.approx(trace / (now[n:].std(ddof=1) * factor))
    theirs = members.mean() - now[n:].mean()
    own = now[n:].var(ddof=1)
    assert by_members.visibility == pytest.approx(theirs / math.sqrt(members.var(ddof=1) / 80 + own / rest))
    assert by_members.resolution == pytest.approx(theirs / math.sqrt(own) / factor)


def test_scores_of_two_values_widen_the_interval_and_break_nothing():
    rng = np.random.default_rng(3)
    now, before = (rng.random((2, 90)) < 0.2).astype(float)
    before[:30] = 1.0
    original, by_members = measure_both(now, before, np.ones(40), 30)
    for share in (original, by_members):
        assert -0.3 < share.low < 0 < share.high < 0.3
    all_alike = measure_both(np.zeros(90), before, np.ones(40), 30)
    assert [(one.low, one.high) for one in all_alike] == [(0, 0), (0, 0)]


def test_forget_records_pushed_to_one_value_leave_the_scatter_of_the_others():
    """A permutation test alone takes their own lack of scatter for certainty."""
    covered, rng = 0, np.random.default_rng(0)
    n_runs = 300
    for seed in range(n_runs):
        now, before = rng.normal(size=(2, 240))
        now[:200], before[:200] = 0.0, before[:200] + 5.0
        found = relabel(np.array([now, before]), 200, n_permutations=199, seed=seed)
        share = share_of_original(now, before, 200, alpha=ALPHA, found=found)
        covered += share.low <= 0 <= share.high
    assert covered >= 0.93 * n_runs


def test_a_trace_that_the_original_does_not_show_leaves_everything_open():
    now, before = draw_scores(12, 10, 30)
    share = measure_both(now, before, np.full(5, before[10:].mean()), 10)
    assert [(one.low, one.high) for one in share] == [(-math.inf, math.inf)] * 2
    assert share[0].visibility < 3
    nothing = measure_both(now, np.zeros(40), np.full(5, now[10:].mean()), 10)
    assert math.isnan(nothing[0].value)
    assert {(one.low, one.high) for one in nothing} == {(-math.inf, math.inf)}
    assert nothing[0].visibility == 0


@pytest.mark.parametrize("m", [2, 5, 20, 38])
def test_one_record_among_too_few_has_the_limits_of_the_t_test(m):
    now, before = draw_scores(m, 1, m)
    before[0] += 200.0
    found = relabel(np.array([now, before]), 1)
    share = share_of_original(now, before, 1, alpha=ALPHA, found=found)
    reach = t.ppf(1 - ALPHA / 2, m - 1) * now[1:].std(ddof=1) * math.sqrt(1 + 1 / m) / (before[0] - before[1:].mean())
    assert share.high - share.low == pytest.approx(2 * reach, rel=0.05)
    members = 200.0 + now
    by_members = share_of_members(now[:1], now[1:], members, alpha=ALPHA, found=found)
    assert by_members.high - by_members.low == pytest.approx(share.high - share.low, rel=0.1)


def test_one_record_among_enough_has_its_conformal_rank():
    now = np.append(0.0, np.arange(1.0, 80.0))
    before = np.append(1000.0, np.zeros(79))
    found = relabel(np.array([now, before]), 1)
    share = share_of_original(now, before, 1, alpha=ALPHA, found=found)
    # at most two of the 80 records may lie below or above; the mean of the others moves along
    c = np.array([share.low, share.high])
    assert (now[0] - c * 1000.0) == pytest.approx([78.0, 2.0])


def test_a_single_other_record_leaves_everything_open():
    now, before = draw_scores(1, 4, 1)
    share = measure_both(now, before + 9.0 * (np.arange(5) < 4), np.arange(9.0) + 9, 4)
    assert {(one.low, one.high) for one in share} == {(-math.inf, math.inf)}
    assert {one.resolution for one in share} == {0.0}


def test_without_labellings_the_t_test_is_left(seen):
    now, before, members, n = seen
    joined, alone = measure_both(*seen), share_of_original(now, before, n, alpha=ALPHA, found=None)
    assert joined[0].low <= alone.low < alone.high <= joined[0].high
    other = share_of_members(now[:n], now[n:], members, alpha=ALPHA, found=None)
    assert joined[1].low <= other.low < other.high <= joined[1].high


def test_what_training_runs_add_widens_the_interval(seen):
    now, before, members, n = seen
    rest = len(now) - n
    run = RunError(0.5, 2.0)
    original = share_of_original(now, before, n, alpha=ALPHA, found=None, run=run)
    by_members = share_of_members(now[:n], now[n:], members, alpha=ALPHA, found=None, run=run)
    own = now[n:].var(ddof=1) * (1 / n + 1 / rest)
    freedom = (own + 0.5) ** 2 / (own**2 / (rest - 1) + 0.5**2 / 2.0)
    bound = t.ppf(1 - ALPHA / 2, freedom)
    both = np.cov(now[n:], before[n:]) * (1 / n + 1 / rest)
    distance, trace = (one[:n].mean() - one[n:].mean() for one in (now, before))

    def test_of(c):
        return abs(distance - c * trace) - bound * math.sqrt(
            both[0, 0] - 2 * c * both[0, 1] + c**2 * both[1, 1] + 0.5 * (1 + c**2)
        )

    assert test_of(original.low) == pytest.approx(0, abs=1e-9)
    assert test_of(original.high) == pytest.approx(0, abs=1e-9)
    far = members.mean() - now[n:].mean()
    apart = [members.var(ddof=1) / 80 + now[n:].var(ddof=1) / rest, now[n:].var(ddof=1) / rest]
    for c in (by_members.low, by_members.high):
        error = math.sqrt(own + 0.5 - 2 * c * apart[1] + c**2 * apart[0])
        assert abs(distance - c * far) == pytest.approx(bound * error)
    assert original.resolution == pytest.approx(trace / math.sqrt(own + 0.5))


def test_samples_that_scatter_differently_count_each_with_its_own_scatter(seen):
    now, before, _, n = seen
    wide = now.copy()
    wide[:n] = now[:n].mean() + 5 * (now[:n] - now[:n].mean())
    found = relabel(np.array([wide, before]), n, n_permutations=399)
    alike, unlike = (
        share_of_original(wide, before, n, alpha=ALPHA, found=found, is_alike=one) for one in (True, False)
    )
    error = math.sqrt(wide[:n].var(ddof=1) / n + wide[n:].var(ddof=1) / 50)
    assert unlike.resolution == pytest.approx((before[:n].mean() - before[n:].mean()) / error)
    assert unlike.high - unlike.low > 1.3 * (alike.high - alike.low)


# single records


@pytest.mark.parametrize(("m", "kind"), [(39, "t"), (99, "skew"), (400, "normal")])
def test_a_record_that_was_never_seen_is_held_by_its_limits(m, kind):
    rng, n_runs = np.random.default_rng(m), 4000
    draw = {"t": lambda size: rng.standard_t(2, size), "skew": rng.standard_exponential, "normal": rng.standard_normal}
    held = np.zeros(3)
    for _ in range(n_runs // 10):
        scores = draw[kind](m + 10)
        _, low, high, at_least, at_most = shares_of_single(scores[:10], scores[10:], 7.0, alpha=ALPHA)
        held += np.array([(low <= 0) & (high >= 0), at_least <= 0, at_most >= 0]).sum(axis=1)
    two_sided, one_sided = (1 - math.floor(level * (m + 1) + 1e-9) / (m + 1) for level in (ALPHA / 2, ALPHA))
    for count, expected in zip(held, (2 * two_sided - 1, one_sided, one_sided), strict=True):
        assert expected >= 1 - ALPHA - 1e-9
        # records of one draw share their comparison, so the count scatters a little more than a binomial one
        assert count / n_runs == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / n_runs))


@pytest.mark.parametrize("trace", [4.0, -4.0])
def test_limits_of_single_records_are_order_statistics(trace):
    second = np.random.default_rng(0).permutation(np.arange(99.0))
    found = shares_of_single(np.array([49.0, 100.0]), second, trace, alpha=ALPHA)
    assert found[0] == pytest.approx(np.array([0.0, 51.0]) / trace)
    for rows, places in ((found[1:3], [97.0, 1.0]), (found[3:], [94.0, 4.0])):
        assert pytest.approx(np.sort((np.array([[49.0], [100.0]]) - places) / trace, axis=1)) == rows.T


@pytest.mark.parametrize("m", [5, 18, 30, 38])
def test_among_too_few_others_a_single_record_has_students_limits(m):
    second = np.random.default_rng(m).normal(size=m)
    found = shares_of_single(np.array([1.0]), second, 5.0, alpha=ALPHA)[:, 0]
    middle, spread = second.mean(), second.std(ddof=1) * math.sqrt(1 + 1 / m)
    reach = t.ppf(1 - ALPHA / 2, m - 1) * spread
    low, high = min(1 - middle - reach, 5 * found[3]), max(1 - middle + reach, 5 * found[4])
    assert found[:3] == pytest.approx(np.array([1 - middle, low, high]) / 5)
    if m < 19:  # one-sided ranks need half as many
        reach = t.ppf(1 - ALPHA, m - 1) * spread
        assert found[3:] == pytest.approx(np.array([1 - middle - reach, 1 - middle + reach]) / 5)


# coverage

_N_FAST, _N_SLOW = 250, 2000


def check_coverage(found, n_runs, least=0.945):
    """At least this coverage, up to the chance of this many runs, of intervals and of each limit."""
    floor = binom.ppf(1e-4, n_runs, least) / n_runs
    assert min(min(one[:3]) for one in found.values()) >= floor, found


@pytest.mark.parametrize(
    "cell", [(1, 20, "normal"), (1, 40, "t3"), (3, 40, "skew"), (10, 20, "normal"), (50, 100, "skew")]
)
def test_intervals_hold_the_truth(cell):
    found = count_covered(*cell, n_runs=_N_FAST)
    check_coverage(found, _N_FAST)
    if cell[0] > 1:  # and they are no wider than they must be
        assert all(found["original", truth][0] < 1 for truth in TRUTHS)


def test_intervals_hold_the_truth_for_people_of_unequal_size():
    check_coverage(count_covered_of_groups(*PEOPLE, n_runs=_N_FAST), _N_FAST)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "t3", "skew"])
@pytest.mark.parametrize("m", SIZES[1])
@pytest.mark.parametrize("n", SIZES[0])
def test_intervals_hold_the_truth_at_every_size(n, m, kind):
    # of one record that remembers all, members tell less where scores are skewed: their mean has a part in the rank
    check_coverage(count_covered(n, m, kind, n_runs=_N_SLOW), _N_SLOW, 0.87 if n == 1 else 0.94)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "least"), [((200, 5, 5), 0.94), ((5, 5, 5), 0.86), ((200, 200, 200), 0.95)])
def test_intervals_hold_the_truth_for_people_of_every_size(sizes, least):
    check_coverage(count_covered_of_groups(sizes, PEOPLE[1], n_runs=_N_SLOW), _N_SLOW, least)
