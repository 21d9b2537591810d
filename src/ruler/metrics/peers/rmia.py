"""RMIA: against how many population records is a forget record the likelier member?"""

import math
from collections.abc import Sequence

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions
from ruler.metrics.outputs import losses
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def rmia(
    forget_predictions: Predictions,
    held_out_predictions: Predictions,
    oracles_forget_predictions: Sequence[Predictions],
    oracles_held_out_predictions: Sequence[Predictions],
    *,
    threshold: float = 1.0,
) -> PeerValue:
    """Against what share of the population is a forget record the likelier member? In [0, 1].

    A record's ratio is its true class's probability in the model over the mean of that in the oracles; it beats a
    held-out record if its ratio is more than ``threshold`` times as high, ties half. Where none was trained on, ratios
    are alike and the mean is about 0.5.

    Example:
        >>> sure, flat = (Predictions(np.array([[scale, 0.0]]), np.array([0])) for scale in (5.0, 0.0))
        >>> rmia(sure, flat, [flat], [flat]).value, rmia(flat, flat, [flat], [flat]).value
        (1.0, 0.5)
    """
    if not min(len(oracles_forget_predictions), len(oracles_held_out_predictions)):
        return PeerValue(math.nan, reason="It needs at least 1 model that never saw the forget records; got 0.")
    own = _rate(forget_predictions, oracles_forget_predictions)
    population = _rate(held_out_predictions, oracles_held_out_predictions)
    lead = own[:, None] - population - np.log(threshold)
    slack = 1e-12
    return average_records(((lead > slack) + 0.5 * (np.abs(lead) <= slack)).mean(axis=1))


def _rate(predictions: Predictions, references: Sequence[Predictions]) -> FloatArray:
    """Logarithm (n,) of the true class's probability over its mean in the references."""
    own = losses(predictions)
    others = [losses(one) for one in references]
    if any(one.shape != own.shape for one in others):
        raise InputError(f"oracles must each have the same {len(own)} records; got others.")
    return np.asarray(-own - np.logaddexp.reduce(-np.array(others), axis=0) + np.log(len(others)))


RMIA = Peer(
    title="RMIA",
    question="Against what share of the held-out records is a forget record the likelier member?",
    compute=rmia,
    range=(0, 1),
    null=0.5,
    source="Zarifzadeh et al., 2024",
)
