"""IAM: where between a model that saw a record and one that did not does its confidence lie?"""

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.metrics.outputs import margins
from ruler.metrics.peers.peer import Peer, PeerValue, average_records

LEAST_GAP = 0.05


def iam(
    forget_predictions: Predictions,
    original_forget_predictions: Predictions,
    oracle_forget_predictions: Predictions,
) -> PeerValue:
    """How much of the confidence that fitting a record gives is left? In [0, 1]: 0 as the oracle, 1 as the original.

    Per record (m - m_oracle) / (m_original - m_oracle), clipped to [0, 1], of the margin m = log(p / (1 - p)); the
    oracle is the one shadow model. A record whose margin in the original is less than 0.05 above the oracle's has
    nothing to interpolate, and no number. The authors put densities between the two ends, where we draw a line.

    Raises:
        InputError: Models that answer for other records.

    Example:
        >>> def answer(*wanted):
        ...     return Predictions(np.array([[margin, 0.0] for margin in wanted]), np.zeros(len(wanted), dtype=int))
        >>> found = iam(answer(2.0, 5.0, 1.0), answer(4.0, 3.0, 1.0), answer(0.0, 1.0, 1.0))
        >>> found.value, found.records.tolist()
        (0.75, [0.5, 1.0, nan])
    """
    named = {
        "forget_predictions": forget_predictions,
        "original_forget_predictions": original_forget_predictions,
        "oracle_forget_predictions": oracle_forget_predictions,
    }
    own, high, low = (margins(one, name) for name, one in named.items())
    if not len(own) == len(high) == len(low):
        raise InputError(f"models must answer for the same {len(own)} records; got {len(high)} and {len(low)}.")
    gap = high - low
    shares = np.clip((own - low) / np.where(gap >= LEAST_GAP, gap, np.nan), 0, 1)
    return average_records(shares, why_none="The original is surer than the oracle of no forget record.")


IAM = Peer(
    title="IAM",
    question="Where between the oracle's confidence on forget records (0) and the original's (1) does the model's lie?",
    compute=iam,
    range=(0, 1),
    why_no_null="Another oracle scatters about the first, and what lies below counts as 0; measure a second oracle.",
    source="Wang et al., 2025",
)
