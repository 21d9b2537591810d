"""How much of a trace remains: a trace now over the trace that training leaves, with an interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, stdtrit

from ruler.core.types import FloatArray, IndexArray

_BLOCK_ELEMENTS = 1 << 20
_FEW_ROWS = 2000  # from here on coins are faster than a shuffle
_TIE = 1e-9
"""Statistics that differ by less, next to their size, count as equal, on the side that raises a p-value."""


@dataclass(frozen=True, eq=False)
class Relabelling:
    """Differences of means for many labellings of the same records, one column per row of scores.

    Args:
        observed: (n_scores,) mean of the first sample minus mean of the second, as labelled.
        drawn: (n_draws, n_scores) the same for other labellings.
        spread: (n_scores,) standard deviation of the difference over all labellings.
        kept: (n_draws,) what other labellings keep of a score that is 1 in the first sample and 0 in the second.
        n_labellings: How many labellings there are in all.
        is_exact: ``drawn`` holds every labelling once, the observed one among them.
    """

    observed: FloatArray
    drawn: FloatArray
    spread: FloatArray
    kept: FloatArray
    n_labellings: float
    is_exact: bool

    @property
    def n_extra(self) -> int:
        """What the plus-one rule adds to counts of draws."""
        return 0 if self.is_exact else 1

    def take(self, columns: Sequence[int]) -> "Relabelling":
        """The same labellings for some of the scores."""
        chosen = list(columns)
        return replace(self, observed=self.observed[chosen], drawn=self.drawn[:, chosen], spread=self.spread[chosen])

    def can_reach(self, level: float) -> bool:
        """Whether any labelling is rare enough for a one-sided test at this level."""
        return level * self.n_labellings >= 1 - _TIE and level * (len(self.drawn) + self.n_extra) >= 1 - _TIE


def relabel(
    scores: FloatArray,
    n_first: int,
    *,
    strata: npt.NDArray[np.intp] | None = None,
    n_permutations: int = 2000,
    seed: int = 0,
) -> Relabelling:
    """Differences of means under random labellings: what chance alone gives if the two samples are exchangeable.

    Args:
        scores: (n_scores, n), records of the first sample first.
        n_first: Records of the first sample.
        strata: (n,) codes; labels are permuted within each stratum. None permutes freely.
        n_permutations: Labellings to draw; if there are no more than these in all, each is counted once.
        seed: Of the labellings.

    Example:
        >>> found = relabel(np.array([[3.0, 1.0, 2.0, 0.0]]), 1)
        >>> found.observed.tolist(), found.is_exact, len(found.drawn)
        ([2.0], True, 4)
    """
    n = scores.shape[1]
    factor = 1 / n_first + 1 / (n - n_first)
    centred = scores - scores.mean(axis=1, keepdims=True)
    is_exact = strata is None and n <= n_permutations and math.comb(n, n_first) <= n_permutations
    is_first = np.arange(n) < n_first
    measured = np.ascontiguousarray(np.vstack([centred, is_first - n_first / n]).T)
    if is_exact:
        drawn = _list_labels(n, n_first) @ measured * factor
    else:
        drawn = _sum_draws(measured, n_first, strata, n_permutations, seed) * factor
    variance = np.square(centred).mean(axis=1) * n / max(1, n - 1) * factor
    return Relabelling(
        centred[:, :n_first].sum(axis=1) * factor,
        drawn[:, :-1],
        np.sqrt(variance),
        drawn[:, -1],
        _count_labellings(is_first, strata),
        is_exact,
    )


def _count_labellings(is_first: npt.NDArray[np.bool_], strata: npt.NDArray[np.intp] | None) -> float:
    codes = np.zeros(len(is_first), dtype=np.intp) if strata is None else strata
    sizes, chosen = np.bincount(codes), np.bincount(codes, weights=is_first)
    logarithm = float((gammaln(sizes + 1) - gammaln(chosen + 1) - gammaln(sizes - chosen + 1)).sum())
    return math.exp(min(logarithm, 700.0))


def _list_labels(n: int, n_first: int) -> FloatArray:
    chosen = np.array(list(combinations(range(n), n_first)))
    labels = np.zeros((len(chosen), n))
    np.put_along_axis(labels, chosen, 1.0, axis=1)
    return labels


def _sum_draws(
    rows: FloatArray, n_first: int, strata: npt.NDArray[np.intp] | None, n_draws: int, seed: int
) -> FloatArray:
    """(n_draws, k) sums of rows (n, k) over random first samples that keep their size in every stratum."""
    is_first = np.arange(len(rows)) < n_first
    parts = [np.arange(len(rows))] if strata is None else [np.flatnonzero(strata == code) for code in np.unique(strata)]
    sums = np.zeros((n_draws, rows.shape[1]))
    for number, part in enumerate(parts):
        sums += _sum_subsets(rows[part], int(is_first[part].sum()), n_draws, np.random.default_rng([seed, number]))
    return sums


def _sum_subsets(rows: FloatArray, size: int, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """(n_draws, k) sums over random subsets of rows (n, k), in the order of the generator whatever a block holds."""
    n = len(rows)
    if 2 * size > n:
        rest: FloatArray = rows.sum(axis=0) - _sum_subsets(rows, n - size, n_draws, rng)
        return rest
    if n > _FEW_ROWS and 8 * size < n:
        return np.array([rows[rng.choice(n, size, replace=False, shuffle=False)].sum(axis=0) for _ in range(n_draws)])
    first, n_block = (np.arange(n) < size).astype(np.float64), max(1, _BLOCK_ELEMENTS // n)
    sums = np.empty((n_draws, rows.shape[1]))
    for start in range(0, n_draws, n_block):
        n_rows = min(n_block, n_draws - start)
        if n <= _FEW_ROWS:
            labels = rng.permuted(np.broadcast_to(first, (n_rows, n)), axis=1)
        else:
            labels = np.array([_choose_many(n, size, rng) for _ in range(n_rows)], dtype=np.float64)
        sums[start : start + n_rows] = labels @ rows
    return sums


def _choose_many(n: int, size: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
    """Marks of a random subset: each row by a coin of 16 bits, then as many at random as there are too few or too many.

    Every subset is as likely as any other of its size, whatever the coin. It takes a fifth of the time of a shuffle.
    """
    coins = rng.integers(0, 1 << 64, -(-n // 4), dtype=np.uint64).view(np.uint16)[:n]
    is_chosen: npt.NDArray[np.bool_] = coins < np.uint16(round(size / n * (1 << 16)))
    n_over = int(np.count_nonzero(is_chosen)) - size
    if n_over:
        others = np.flatnonzero(is_chosen == (n_over > 0))
        is_chosen[rng.choice(others, abs(n_over), replace=False, shuffle=False)] = n_over < 0
    return is_chosen


def correct_families(
    found: Relabelling, families: Sequence[int], sides: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Permutation p-values of families of scores, and p-values of single scores corrected for all of them.

    A score's statistic is its difference in standard deviations, a family's the largest among its scores. The
    correction is Westfall and Young's step-down maximum: rejecting corrected p-values of at most alpha keeps the chance
    of any false rejection at alpha.

    Args:
        found: Of `relabel`.
        families: (n_scores,) which family 0..f-1 each score belongs to.
        sides: (n_scores,) 0 looks on both sides, 1 only above, -1 only below.

    Returns:
        (n_families,) and (n_scores,).

    Example:
        >>> rng = np.random.default_rng(1)
        >>> scores = np.array([rng.normal(size=40) + 3.0 * (np.arange(40) < 10), rng.normal(size=40)])
        >>> raw, corrected = correct_families(relabel(scores, 10), [0, 1], [0, 0])
        >>> bool(corrected[0] < 0.01), bool(corrected[1] > 0.05)
        (True, True)
    """
    codes = np.asarray(families)
    scale = np.where(found.spread > 0, found.spread, np.inf)
    observed, drawn = (_turn(part / scale, np.asarray(sides)) for part in (found.observed, found.drawn))
    floors = observed - _TIE * (1 + np.abs(observed))
    n_draws = len(drawn) + found.n_extra
    raw = np.empty(int(codes.max()) + 1)
    for family in range(len(raw)):
        own = codes == family
        raw[family] = ((drawn[:, own].max(axis=1) >= floors[own].max()).sum() + found.n_extra) / n_draws
    order = np.argsort(-observed, kind="stable")
    # the largest among each score and all that are less extreme
    rest = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    counts = (rest >= floors[order]).sum(axis=0) + found.n_extra
    corrected = np.empty(len(observed))
    corrected[order] = np.maximum.accumulate(counts / n_draws)
    return raw, corrected


def _turn(statistics: FloatArray, sides: IndexArray) -> FloatArray:
    turned: FloatArray = np.where(sides == 0, np.abs(statistics), statistics * sides)
    return turned


@dataclass(frozen=True)
class Share:
    """A trace over another: 0 none of it, 1 all of it.

    Args:
        value: The ratio.
        low: Lower limit.
        high: Upper limit; infinite if the trace that it is divided by may be zero.
        at_least: One-sided lower limit of the same confidence.
        at_most: One-sided upper limit of the same confidence.
        visibility: That trace over its standard error.
        resolution: That trace over the standard error that the numerator has if nothing remains.
    """

    value: float
    low: float
    high: float
    at_least: float
    at_most: float
    visibility: float
    resolution: float


@dataclass(frozen=True)
class RunError:
    """What chance adds from one training run to the next: the variance of a difference of means.

    Args:
        variance: Of the difference.
        freedom: Degrees of freedom of that estimate.
    """

    variance: float
    freedom: float


def share_of_original(
    now: FloatArray,
    before: FloatArray,
    n_first: int,
    *,
    alpha: float,
    found: Relabelling | None,
    columns: tuple[int, int] = (0, 1),
    run: RunError | None = None,
    is_alike: bool = True,
) -> Share:
    """How much of the trace that the first sample has in ``before`` is left in ``now``, with a 1 - alpha interval.

    The trace is mean(first) - mean(second). The interval holds every c that is not rejected for T = now - c before, by
    the worse of two tests of equal means: a permutation test and a t test whose variance comes from the second sample,
    s^2 (1/n + 1/m) with m - 1 degrees of freedom. The first sample is no draw of a population, so its scatter has no
    part. With one record the interval is the permutation test's, a conformal rank. With too few records for any
    labelling to be rare enough it is the t test's.

    Args:
        now: (n,) scores, the first sample first.
        before: (n,) scores of the same records.
        n_first: Records of the first sample.
        alpha: One minus the confidence.
        found: Of `relabel`; None if the samples are not exchangeable, which leaves the t test.
        columns: Which of its columns belong to ``now`` and ``before``.
        run: What training runs add if the samples are not exchangeable.
        is_alike: Scores of both samples scatter alike if nothing remains; else the first sample's own scatter counts.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> before = rng.normal(size=120) + 5.0 * (np.arange(120) < 20)
        >>> now = rng.normal(size=120)
        >>> share = share_of_original(now, before, 20, alpha=0.05, found=relabel(np.array([now, before]), 20))
        >>> share.low < 0 < share.high < 0.2
        True
    """
    n, m = n_first, len(now) - n_first
    numerator, trace = (float(one[:n].mean() - one[n:].mean()) for one in (now, before))
    factor = 1 / n + 1 / m
    covariance = np.cov(now[n:], before[n:]) * factor if m > 1 else np.full((2, 2), np.inf)
    freedom = float(m - 1)
    if not is_alike:
        own = np.cov(now[:n], before[:n]) / n if n > 1 else np.full((2, 2), np.inf)
        covariance, freedom = own + covariance / factor / m, float(min(n, m) - 1)
    if run is not None:
        whole = covariance + run.variance * np.eye(2)
        freedom = whole[0, 0] ** 2 / (covariance[0, 0] ** 2 / freedom + run.variance**2 / run.freedom)
        covariance = whole
    drawn = found.take(columns) if found is not None and is_alike else None
    return _conclude(numerator, trace, covariance, freedom, drawn, alpha, is_single=n == 1)


def share_of_members(
    first: FloatArray,
    second: FloatArray,
    members: FloatArray,
    *,
    alpha: float,
    found: Relabelling | None,
    column: int = 0,
    run: RunError | None = None,
) -> Share:
    """How much of the trace that known members have is left in the first sample, with a 1 - alpha interval.

    (mean(first) - mean(second)) / (mean(members) - mean(second)). The interval holds every c that is not rejected by
    the worse of two tests, as in `share_of_original`: Fieller's theorem, where the scatter of the first sample is taken
    from the second, and a permutation test of equal means after subtracting c times the members' trace from the first
    sample. It is infinite if Fieller's theorem cannot tell the members' trace from 0.

    Args:
        first: (n,) scores of records to be judged.
        second: (m,) of records that were never trained on.
        members: (r,) of records that were.
        alpha: One minus the confidence.
        found: Of `relabel` of first and second; None if they are not exchangeable.
        column: Which of its columns these scores are.
        run: What training runs add if the samples are not exchangeable.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> first, second, members = rng.normal(size=50), rng.normal(size=100), rng.normal(size=500) + 6
        >>> found = relabel(np.append(first, second)[None], 50)
        >>> share = share_of_members(first, second, members, alpha=0.05, found=found)
        >>> -0.2 < share.low < share.high < 0.2
        True
    """
    n, m, r = len(first), len(second), len(members)
    numerator, trace = float(first.mean() - second.mean()), float(members.mean() - second.mean())
    own = float(second.var(ddof=1)) if m > 1 else math.inf
    theirs = float(members.var(ddof=1)) if r > 1 else math.inf
    covariance = np.array([[own * (1 / n + 1 / m), own / m], [own / m, theirs / r + own / m]])
    freedom = float(m - 1)
    if run is not None:
        whole = covariance[0, 0] + run.variance
        freedom = whole**2 / (covariance[0, 0] ** 2 / freedom + run.variance**2 / run.freedom)
        covariance[0, 0] = whole
    drawn = None
    if found is not None and math.isfinite(_solve(numerator, trace, covariance, freedom, alpha / 2)[0]):
        moved = np.column_stack([found.drawn[:, column], trace * found.kept])
        drawn = replace(found, observed=np.array([found.observed[column], trace]), drawn=moved)
    return _conclude(numerator, trace, covariance, freedom, drawn, alpha, is_single=n == 1)


def shares_of_single(first: FloatArray, second: FloatArray, trace: float, *, alpha: float) -> FloatArray:
    """How much of a typical record's trace each record of the first sample has.

    Limits are conformal: a record that was never seen lies within those of its own score with a chance of 1 - alpha,
    whatever the distribution. With too few records in the second sample for that, they are Student's limits of one more
    record.

    Returns:
        (5, n) values, two-sided lower and upper limits, one-sided lower and upper limits.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = shares_of_single(np.array([0.0, 10.0]), rng.normal(size=99), 10.0, alpha=0.05)
        >>> bool(found[1, 0] < 0 < found[2, 0] < 0.5), bool(found[1, 1] > 0.5)
        (True, True)
    """
    ordered, m = np.sort(second), len(second)
    middle, spread = float(second.mean()), float(second.std(ddof=1)) * math.sqrt(1 + 1 / m)
    values = (first - middle) / trace
    rows = [values]
    for level in (alpha / 2, alpha):
        place = math.floor(level * (m + 1) + _TIE)
        reach = float(stdtrit(m - 1, 1 - level)) * spread
        under, over = (ordered[place - 1], ordered[m - place]) if place else (middle - reach, middle + reach)
        # a mean may lie beyond the quantiles: an interval holds its value nevertheless
        ends = np.sort(np.array([(first - over) / trace, (first - under) / trace, values]), axis=0)
        rows += [ends[0], ends[2]]
    # of few records the two-sided limits are Student's and the one-sided ones ranks: the wider interval holds the other
    rows[1:3] = np.minimum(rows[1], rows[3]), np.maximum(rows[2], rows[4])
    return np.array(rows)


def _conclude(
    numerator: float,
    trace: float,
    covariance: FloatArray,
    freedom: float,
    drawn: Relabelling | None,
    alpha: float,
    *,
    is_single: bool,
) -> Share:
    """The ratio with two-sided and one-sided limits: on each side the wider of Fieller's and the permutation test's."""
    value = numerator / trace if trace else math.nan
    ends = []
    for level in (alpha / 2, alpha):  # of each side
        is_permuted = drawn is not None and drawn.can_reach(level)
        limits = [] if is_single and is_permuted else [_solve(numerator, trace, covariance, freedom, level)]
        if drawn is not None and is_permuted:
            limits.append(_invert(drawn.observed, drawn.drawn, drawn.n_extra, level))
        limits += [(value, value)] * (trace != 0)  # an interval holds its value
        ends += [min(low for low, _ in limits), max(high for _, high in limits)]
    errors = [math.sqrt(covariance[i, i]) for i in (1, 0)]
    ratios = [abs(trace) / error if error > 0 else math.inf * abs(trace) for error in errors]
    return Share(value, *ends, *(0.0 if math.isnan(one) else float(one) for one in ratios))


def _solve(numerator: float, trace: float, covariance: FloatArray, freedom: float, level: float) -> tuple[float, float]:
    """Fieller's limits, each at a level; infinite if the trace may be zero."""
    if not np.isfinite(covariance).all():
        return -math.inf, math.inf
    square = float(stdtrit(max(1.0, freedom), 1 - level)) ** 2
    a = trace**2 - square * covariance[1, 1]
    if a <= 0:
        return -math.inf, math.inf
    b = numerator * trace - square * covariance[0, 1]
    root = math.sqrt(max(0.0, b**2 - a * (numerator**2 - square * covariance[0, 0])))
    return float((b - root) / a), float((b + root) / a)


def _invert(observed: FloatArray, drawn: FloatArray, n_extra: int, level: float) -> tuple[float, float]:
    """Limits of c by two one-sided permutation tests of ``now - c before``, each at a level.

    The draw b is at most as high as the observed difference for c up to (N - N_b) / (D - D_b) if D > D_b, and for every
    large c otherwise. So the upper limit is an order statistic of these ratios.
    """
    numerator, trace = observed if observed[1] >= 0 else -observed
    over, under = (drawn if observed[1] >= 0 else -drawn).T
    steps, gaps = numerator - over, trace - under
    n_needed = math.floor(level * (len(drawn) + n_extra) + _TIE) + 1 - n_extra
    slack = _TIE * max(abs(trace), 1e-300)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(gaps > slack, steps / gaps, np.nan)
    if n_needed < 1:
        return -math.inf, math.inf
    high = np.sort(np.where(np.isnan(ratios), math.inf, ratios))[len(drawn) - n_needed]
    low = np.sort(np.where(np.isnan(ratios), -math.inf, ratios))[n_needed - 1]
    return float(low), float(high)
