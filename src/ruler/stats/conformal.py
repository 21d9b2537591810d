"""Does a single record stand out from its control?"""

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.types import FloatArray
from ruler.stats.samples import as_sample


def conformal_p_values(scores: npt.ArrayLike, control: npt.ArrayLike) -> FloatArray:
    """How unusual is each score among those of the control, on either side?

    p = twice the smaller of (1 + number of control scores at most s) / (m + 1) and (1 + number at least s) / (m + 1),
    at most 1: valid for each record that is exchangeable with the control's. No p-value can be under 2 / (m + 1), so
    that a small control flags nobody.

    Args:
        scores: (n,) one a record.
        control: (m,) of records that were never trained on.

    Returns:
        (n,) p-values in (0, 1].

    Raises:
        InputError: Empty or not finite.

    Example:
        >>> conformal_p_values([5.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0]).tolist()
        [0.4, 1.0, 1.0]
    """
    values, reference = as_sample(scores, "scores"), np.sort(as_sample(control, "control"))
    n_at_most = np.searchsorted(reference, values + TIE_SLACK, side="right")
    n_at_least = len(reference) - np.searchsorted(reference, values - TIE_SLACK, side="left")
    return np.minimum(1.0, 2.0 * (1 + np.minimum(n_at_most, n_at_least)) / (len(reference) + 1))
