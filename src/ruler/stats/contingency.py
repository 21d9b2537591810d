"""Pearson's chi-squared test of a table of counts without the second that importing scipy.stats takes."""

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc


def homogeneity_p_value(table: npt.NDArray[np.intp]) -> float:
    """Do samples have the same mix of classes? The p-value in [0, 1].

    With two samples and two classes, counts are corrected for continuity (Yates).

    Args:
        table: (n_samples, n_classes) counts; at least two of each, and no row or column of zeros.

    Example:
        >>> round(homogeneity_p_value(np.array([[10, 10, 20], [20, 20, 20]])), 4)
        0.2494
    """
    counts = table.astype(np.float64)
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    n_free = (table.shape[0] - 1) * (table.shape[1] - 1)
    if n_free == 1:
        gap = expected - counts
        counts = counts + np.minimum(0.5, np.abs(gap)) * np.sign(gap)
    return float(chdtrc(n_free, np.sum((counts - expected) ** 2 / expected)))
