"""Does a single record stand out from its control?"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from ruler.core.arithmetic import TIE_SLACK
from ruler.core.types import FloatArray
from ruler.stats.samples import as_sample


def conformal_p_values(
    scores: npt.ArrayLike, control: npt.ArrayLike, *, tail: Literal["low", "both"] = "both"
) -> FloatArray:
    """How unusual is each score among those of the control?

    p[low] = (1 + number of control scores at most s) / (m + 1); both tails: twice the smaller of the two, at most 1.
    Valid for each record that is exchangeable with the control's. No p-value can be under 1 / (m + 1), or twice that
    for both tails, so that a small control flags nobody.

    Args:
        scores: (n,) one a record.
        control: (m,) of records that were never trained on.
        tail: Which side counts as unusual.

    Returns:
        (n,) p-values in (0, 1].

    Raises:
        InputError: Empty or not finite.

    Example:
        >>> conformal_p_values([5.0, 2.5, 2.0], [1.0, 2.0, 3.0, 4.0]).tolist()
        [0.4, 1.0, 1.0]
        >>> conformal_p_values([0.5], [1.0, 2.0, 3.0, 4.0], tail="low").tolist()
        [0.2]
    """
    values, reference = as_sample(scores, "scores"), np.sort(as_sample(control, "control"))
    n_at_most = np.searchsorted(reference, values + TIE_SLACK, side="right")
    low: FloatArray = (1 + n_at_most) / (len(reference) + 1)
    if tail == "low":
        return low
    n_at_least = len(reference) - np.searchsorted(reference, values - TIE_SLACK, side="left")
    return np.minimum(1.0, 2.0 * np.minimum(low, (1 + n_at_least) / (len(reference) + 1)))
