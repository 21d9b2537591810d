"""Is there no contrast worth speaking of? Two one-sided tests, what the sample could have shown, and what is left."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from ruler.core.types import FloatArray
from ruler.stats.auc import Effect, normal_quantile, place_samples


def equivalence_p_value(effect: Effect, margin: float) -> float:
    """Is the AUC within ``margin`` of 1/2? Small p-values say yes.

    Two one-sided t tests (Schuirmann 1987); the larger of their p-values. The error is the larger of the estimate's own
    and the spread under the null, so that a lucky small variance cannot prove equivalence.

    Args:
        effect: Of `measure_effect` or `compare_with_oracles`.
        margin: Largest distance that still counts as none, in (0, 0.5).

    Returns:
        p-value; NaN where there is no standard error (fewer than two records on a side).

    Example:
        >>> from ruler.stats.auc import measure_effect
        >>> alike = measure_effect(list(range(200)), list(range(200)))
        >>> equivalence_p_value(alike, 0.1) < 0.05, equivalence_p_value(alike, 0.01) < 0.05
        (True, False)
    """
    if math.isnan(effect.standard_error):
        return math.nan
    distance = abs(effect.value - 0.5)
    if effect.error == 0.0:
        return 0.0 if distance < margin else 1.0
    return float(stdtr(effect.freedom, (distance - margin) / effect.error))


def minimum_detectable_effect(effect: Effect, *, alpha: float, power: float) -> float:
    """How far from 1/2 must an AUC be for the two-sided test to find it with this power?

    (z[1 - alpha/2] + z[power]) times the spread under the null, at most 0.5; NaN where the scores are all tied. For one
    of several tests, ``alpha`` is the level that is left for it.

    Example:
        >>> from ruler.stats.auc import measure_effect
        >>> effect = measure_effect(list(range(50)), list(range(100)))
        >>> round(minimum_detectable_effect(effect, alpha=0.05, power=0.8), 2)
        0.14
    """
    if not effect.null_spread > 0.0:
        return math.nan
    return min(0.5, (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * effect.null_spread)


def count_needed(effect: Effect, margin: float, *, alpha: float, power: float, n_tests: int = 1) -> int | None:
    """How many records must the first sample hold for equivalence to be shown with this power, if it is true?

    The error must fall to margin / (z[1 - alpha] + z[(1 + q) / 2]), and falls with the root of the size, the second
    sample growing in proportion; q is the power that each of ``n_tests`` independent tests needs for all of them to
    succeed. None where the scores are all tied.

    Example:
        >>> from ruler.stats.auc import measure_effect
        >>> effect = measure_effect(list(range(50)), list(range(100)))
        >>> [count_needed(effect, 0.1, alpha=0.05, power=0.8, n_tests=n) for n in (1, 2)]
        [108, 134]
    """
    if not effect.null_spread > 0.0:
        return None
    each = power ** (1.0 / n_tests)
    target = margin / (normal_quantile(1 - alpha) + normal_quantile((1 + each) / 2))
    return max(2, math.ceil(effect.n_first * (effect.null_spread / target) ** 2))


@dataclass(frozen=True)
class Share:
    """Part of a reference contrast that is left in another: 1 all, 0 none, negative turned over."""

    value: float
    interval: tuple[float, float]  # two-sided, by Fieller
    upper: float  # one-sided limits
    lower: float


def share_of_records(
    now: tuple[FloatArray, FloatArray], before: tuple[FloatArray, FloatArray], *, alpha: float
) -> Share:
    """Part of the contrast of ``before`` that is left in ``now``: two scores of the same first and second sample.

    The AUCs' variances and their covariance come from the placements of the records (DeLong and others 1988).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> first, second = rng.normal(size=100) + 2, rng.normal(size=200)
        >>> same = share_of_records((first, second), (first, second), alpha=0.05)
        >>> round(same.value, 9), round(same.upper, 6)
        (1.0, 1.0)
    """
    placed = np.array([place_samples(*now)[0], place_samples(*before)[0]])
    others = np.array([place_samples(*now)[1], place_samples(*before)[1]])
    n, m = placed.shape[1], others.shape[1]
    covariance = np.cov(placed) / n + np.cov(others) / m if min(n, m) > 1 else np.full((2, 2), np.nan)
    return divide(placed[0].mean() - 0.5, placed[1].mean() - 0.5, covariance, freedom=n + m - 2, alpha=alpha)


def divide(now: float, before: float, covariance: FloatArray, *, freedom: float, alpha: float) -> Share:
    """``now`` over ``before`` with limits by Fieller's theorem; infinite ones where ``before`` may be zero.

    Both are distances from no contrast; ``covariance`` is (2, 2) of the two estimates, with ``freedom`` degrees.

    Example:
        >>> found = divide(0.1, 0.2, np.diag([0.01, 0.01]) ** 2, freedom=1e6, alpha=0.05)
        >>> round(found.value, 3), [round(end, 2) for end in found.interval]
        (0.5, [0.39, 0.62])
    """
    if before == 0 or np.isnan(covariance).any():
        return Share(math.nan, (-math.inf, math.inf), math.inf, -math.inf)

    def solve(quantile: float) -> tuple[float, float]:
        square = quantile**2
        a = before**2 - square * covariance[1, 1]
        if a <= 0:
            return -math.inf, math.inf
        b = now * before - square * covariance[0, 1]
        root = math.sqrt(max(0.0, b**2 - a * (now**2 - square * covariance[0, 0])))
        return float((b - root) / a), float((b + root) / a)

    lower, upper = solve(float(stdtrit(freedom, 1 - alpha)))
    return Share(float(now / before), solve(float(stdtrit(freedom, 1 - alpha / 2))), upper, lower)
