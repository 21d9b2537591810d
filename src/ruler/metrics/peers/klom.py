"""KLoM: do margins of many unlearned models scatter as those of many oracles?"""

import math
from collections.abc import Sequence

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions
from ruler.metrics.outputs import margins
from ruler.metrics.peers.peer import Peer, PeerValue, average_records

N_BINS = 20
LARGEST = 12.0
LEAST_MODELS = 10


def klom(
    shadows_forget_predictions: Sequence[Predictions],
    oracles_forget_predictions: Sequence[Predictions],
    *,
    least: int = LEAST_MODELS,
) -> PeerValue:
    """How far is the distribution of a record's margin over unlearned models from that over oracles? In [0, 12] nats.

    Per record, KL(unlearned || oracles) of histograms of the margin log(p / (1 - p)) in 20 bins of equal width over
    both. A bin that no oracle reaches makes it infinite, which counts as 12, as does everything above: with few models
    nearly every record, so that there is no number for fewer than ``least`` on a side. Its authors take 100.

    Example:
        >>> def answer(margin):
        ...     return Predictions(np.array([[margin, 0.0]]), np.array([0]))
        >>> one, two = [answer(0.0), answer(1.0)], [answer(0.0), answer(0.0), answer(0.0), answer(1.0)]
        >>> round(klom(one, two, least=2).value, 4)  # (ln(2 / 3) + ln 2) / 2
        0.1438
    """
    both = (shadows_forget_predictions, oracles_forget_predictions)
    fewest = min(map(len, both))
    if fewest < max(1, least):
        return PeerValue(math.nan, reason=f"It needs at least {max(1, least)} models on each side; got {fewest}.")
    own, other = (np.array([margins(one) for one in models]) for models in both)  # (models, n)
    if own.shape[1] != other.shape[1]:
        raise InputError(f"models must answer for the same records; got {own.shape[1]} and {other.shape[1]}.")
    return average_records(np.array([_diverge(*pair) for pair in zip(own.T, other.T, strict=True)]))


def _diverge(own: FloatArray, other: FloatArray) -> float:
    edges = np.histogram_bin_edges(np.concatenate([own, other]), bins=N_BINS)
    p, q = (np.histogram(values, edges)[0] / len(values) for values in (own, other))
    is_there = p > 0
    if (q[is_there] == 0).any():
        return LARGEST
    return min(LARGEST, float((p[is_there] * np.log(p[is_there] / q[is_there])).sum()))


KLOM = Peer(
    title="KLoM",
    question="How far are the margins over many unlearned models from those over many oracles?",
    compute=klom,
    range=(0, LARGEST),
    why_no_null="Few models leave bins empty, so that two sets of oracles are apart too; compare with a second set.",
    source="Georgiev et al., 2024",
)
