"""Wilcoxon signed-rank tests with the rank-biserial effect size: one sample, paired, group means, many methods."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.stats.p_values import adjust_p_values
from ruler.stats.samples import as_sample, average_by_group

Distribution = Literal["auto", "normal"]
_TIE_SLACK = 1e-12  # differences closer than this part of the largest value are rounding: they tie


@dataclass(frozen=True)
class WilcoxonResult:
    """A two-sided signed-rank test.

    Args:
        statistic: W, the smaller of the two rank sums.
        p_value: Two-sided.
        rank_biserial: 1 - 4 W / [n (n + 1)], in [0, 1]; 1 when all differences have one sign. Its direction is that of
            the mean or median.
        n: Number of differences that are not zero.
        note: Why the numbers are NaN; empty otherwise.
    """

    statistic: float
    p_value: float
    rank_biserial: float
    n: int
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two methods on one metric."""

    metric: str
    first: str
    second: str
    difference: float  # mean of first minus second over the datasets
    p_value: float  # of the paired signed-rank test
    p_adjusted: float  # the same after Benjamini-Hochberg over the whole family
    rank_biserial: float  # effect size in [0, 1]
    n: int  # datasets on which the two differ
    note: str = ""  # why the test is NaN; empty otherwise


def signed_rank(values: npt.ArrayLike, null: float = 0.0, *, distribution: Distribution = "auto") -> WilcoxonResult:
    """Do the values lie to one side of ``null``?

    The test and effect size of the paper's section 4.3. Values equal to ``null`` are dropped and not counted.

    Args:
        values: (n,) finite numbers.
        null: Centre under the null hypothesis.
        distribution: Of W under the null. ``"auto"`` is exact up to 50 values (13 where absolute differences tie) and
            normal above; ``"normal"`` is the approximation at any size, not continuity-corrected.

    Returns:
        The test; NaN with a note when fewer than two values differ from ``null``.

    Raises:
        InputError: Values that are empty or not finite, or an unknown distribution.

    Example:
        >>> result = signed_rank([-0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7, -0.8, -0.9, -1.0])
        >>> round(result.p_value, 3), result.rank_biserial, result.n
        (0.002, 1.0, 10)
    """
    sample = as_sample(values, "values")
    return _test(_steps(sample - null, max(np.abs(sample).max(), abs(null))), distribution)


def paired_signed_rank(
    first: npt.ArrayLike, second: npt.ArrayLike, *, distribution: Distribution = "auto"
) -> WilcoxonResult:
    """Do the values of ``first`` lie to one side of their partners in ``second``? Both are (n,); as `signed_rank`.

    Raises:
        InputError: Also samples of different length.

    Example:
        >>> paired_signed_rank([1.0, 2.0, 3.0, 4.0], [1.5, 2.6, 3.7, 4.0]).n
        3
    """
    a, b = as_sample(first, "first"), as_sample(second, "second")
    if a.shape != b.shape:
        raise InputError(
            f"first and second must be paired, of the same length; got {len(a)} and {len(b)} values. "
            "Give the same datasets in the same order."
        )
    return _test(_steps(a - b, max(np.abs(a).max(), np.abs(b).max())), distribution)


def signed_rank_of_means(
    values: npt.ArrayLike,
    groups: Sequence[Any] | npt.NDArray[Any],
    null: float = 0.0,
    *,
    distribution: Distribution = "auto",
) -> WilcoxonResult:
    """Do the means of the groups lie to one side of ``null``? Each group counts once, however large.

    As `signed_rank`; ``groups`` are (n,) labels of each value's group, e.g. its dataset.

    Example:
        >>> signed_rank_of_means([1.0, 3.0, -1.0, 4.0], ["a", "a", "b", "c"]).n
        3
    """
    return signed_rank(average_by_group(values, groups), null, distribution=distribution)


def compare_methods(
    scores: Mapping[str, Mapping[str, npt.ArrayLike]], *, distribution: Distribution = "auto"
) -> list[Comparison]:
    """Which methods can be told apart, and on which metric?

    Paired signed-rank tests on dataset means, all pairs of methods on all metrics, corrected as one family: the 24
    tests of the paper's section 5.3. Its adjusted p of 0.046 is what ``distribution="normal"`` gives when four pairs
    differ in one direction on nine of ten datasets and not on the tenth; the exact test gives 0.023 there.

    Args:
        scores: ``scores[metric][method]`` holds dataset means, shape (n_datasets,), in one order.
        distribution: As in ``signed_rank``.

    Raises:
        InputError: Fewer than two methods on a metric, or means empty, not finite or of unequal length.

    Example:
        >>> means = {"fine_tuning": [0.9, 0.8, 0.7], "scrub": [0.8, 0.6, 0.4]}
        >>> [found] = compare_methods({"retain_accuracy": means})
        >>> found.first, found.second, round(found.difference, 2), found.p_adjusted
        ('fine_tuning', 'scrub', 0.2, 0.25)
    """
    family = []
    for metric, methods in scores.items():
        if len(methods) < 2:
            raise InputError(f"scores[{metric!r}] must hold at least two methods; got {list(methods)}. Add another.")
        for pair in combinations(methods, 2):
            first, second = (as_sample(methods[name], f"scores[{metric!r}][{name!r}]") for name in pair)
            test = paired_signed_rank(first, second, distribution=distribution)
            difference = float(np.mean(first - second))
            family.append(
                Comparison(metric, *pair, difference, test.p_value, math.nan, test.rank_biserial, test.n, test.note)
            )
    adjusted = adjust_p_values([comparison.p_value for comparison in family])
    return [replace(comparison, p_adjusted=float(p)) for comparison, p in zip(family, adjusted, strict=True)]


def _steps(differences: FloatArray, largest: float) -> FloatArray:
    # In whole steps of the slack, 0.52 - 0.5 and 0.5 - 0.48 are the same size, as they are on paper.
    return np.round(differences / (_TIE_SLACK * largest or 1.0))


def _test(differences: FloatArray, distribution: Distribution) -> WilcoxonResult:
    if distribution not in ("auto", "normal"):
        raise InputError(f"distribution must be 'auto' or 'normal'; got {distribution!r}. Leave it out for 'auto'.")
    nonzero = differences[differences != 0]
    n = len(nonzero)
    if n == 0:
        return WilcoxonResult(math.nan, math.nan, math.nan, 0, "every difference is zero: nothing to rank")
    if n == 1:
        return WilcoxonResult(math.nan, math.nan, math.nan, 1, "one difference that is not zero: nothing to test")
    from scipy.stats import wilcoxon  # loads slowly, and audits need none

    result = wilcoxon(nonzero, method="auto" if distribution == "auto" else "approx")
    statistic = float(result.statistic)
    return WilcoxonResult(statistic, float(result.pvalue), 1.0 - 4.0 * statistic / (n * (n + 1)), n)
