"""Robustness of a metric: does its number survive relearning and quantisation of the model?"""

import math
from collections.abc import Sequence

from ruler.core.errors import InputError


def relearning_robustness(
    oracle_before: float, oracle_after: float, unlearned_before: float, unlearned_after: float
) -> float:
    """Does an unlearned model regain no more by relearning than the oracle learns? min(D_oracle / D_unlearned, 1).

    D = before - after, of a metric that rises with knowledge. 1 if the unlearned model's number rises by no more than
    the oracle's, or not at all; NaN if the oracle's does not rise, for then nothing was learned.

    Example:
        >>> relearning_robustness(0.0, 0.25, 0.0, 0.5), relearning_robustness(0.0, 0.25, 0.25, 0.25)
        (0.5, 1.0)
    """
    oracle, unlearned = oracle_before - oracle_after, unlearned_before - unlearned_after
    if math.isnan(oracle + unlearned) or oracle >= 0:
        return math.nan
    return min(oracle / unlearned, 1.0) if unlearned < 0 else 1.0


def quantization_robustness(before: float, after: float) -> float:
    """Does the number hold when the model's weights are rounded to few bits? min(after / before, 1).

    As published, so only a fall lowers it. A metric that falls when knowledge returns, such as UDS, is thereby marked
    down for what quantisation brings back; of one that rises with knowledge, give the two numbers in exchange to ask
    the same. Both must be at least 0; NaN if ``before`` is 0.

    Example:
        >>> quantization_robustness(0.8, 0.4), quantization_robustness(0.3, 0.4)
        (0.5, 1.0)
    """
    if min(before, after) < 0:
        raise InputError(f"before and after must be at least 0; got {before} and {after}. Use a metric in [0, 1].")
    return math.nan if before == 0 or math.isnan(before + after) else min(after / before, 1.0)


def harmonic_mean(values: Sequence[float]) -> float:
    """n / sum(1 / value) of numbers of at least 0; 0 if one is 0.

    Example:
        >>> harmonic_mean([1.0, 0.5]), harmonic_mean([1.0, 0.0])
        (0.6666666666666666, 0.0)
    """
    if not values or min(values) < 0:
        raise InputError(f"values must be numbers of at least 0, at least one; got {list(values)}.")
    return 0.0 if 0 in values else len(values) / math.fsum(1 / value for value in values)
