"""Is there no contrast worth speaking of? Two one-sided tests, and what the sample could have shown."""

import math

from scipy.stats import norm, t

from ruler.stats.permutation import Contrast


def equivalence_p_value(contrast: Contrast, margin: float) -> float:
    """Is the AUC within ``margin`` of what the null gives? Small p-values say yes.

    Two one-sided t tests (Schuirmann 1987); the larger of their p-values. The error is the larger of the estimate's own
    and the spread under the null, so that a lucky small variance cannot prove equivalence.

    Args:
        contrast: Of `compare_samples` or `compare_with_placebos`.
        margin: Largest distance that still counts as none, in (0, 0.5).

    Returns:
        p-value; NaN where there is no standard error (fewer than two units on a side).

    Example:
        >>> from ruler.stats.permutation import compare_samples
        >>> alike = compare_samples(list(range(200)), list(range(200)))
        >>> equivalence_p_value(alike, 0.1) < 0.05, equivalence_p_value(alike, 0.01) < 0.05
        (True, False)
    """
    if math.isnan(contrast.standard_error):
        return math.nan
    distance = abs(contrast.effect - contrast.null_effect)
    error = max(contrast.standard_error, contrast.null_spread)
    if error == 0.0:
        return 0.0 if distance < margin else 1.0
    freedom = contrast.degrees_of_freedom
    if math.isnan(freedom):  # both samples without spread in their placements
        freedom = float(contrast.n_first + contrast.n_second - 2)
    return float(t.sf((margin - distance) / error, freedom))


def minimum_detectable_effect(contrast: Contrast, *, alpha: float, power: float) -> float:
    """How far from its null must an AUC be for the two-sided test to find it with this power?

    (z[1 - alpha/2] + z[power]) times the spread under the null, at most 0.5; NaN where the scores are all tied.

    Example:
        >>> from ruler.stats.permutation import compare_samples
        >>> contrast = compare_samples(list(range(50)), list(range(100)))
        >>> round(minimum_detectable_effect(contrast, alpha=0.05, power=0.8), 2)
        0.14
    """
    if contrast.null_spread == 0.0:
        return math.nan
    return min(0.5, float(norm.ppf(1 - alpha / 2) + norm.ppf(power)) * contrast.null_spread)


def count_needed(contrast: Contrast, margin: float, *, alpha: float, power: float) -> int | None:
    """How many units must the first sample hold for equivalence to be shown with this power, if it is true?

    The error must fall to margin / (z[1 - alpha] + z[(1 + power) / 2]), and falls with the root of the size, the second
    sample growing in proportion. None where the scores are all tied.

    Example:
        >>> from ruler.stats.permutation import compare_samples
        >>> count_needed(compare_samples(list(range(50)), list(range(100))), 0.1, alpha=0.05, power=0.8)
        111
    """
    if contrast.null_spread == 0.0:
        return None
    target = margin / float(norm.ppf(1 - alpha) + norm.ppf((1 + power) / 2))
    return max(2, math.ceil(contrast.n_first * (contrast.null_spread / target) ** 2))
