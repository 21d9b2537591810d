"""Activation distance: how far are the model's outputs from the oracle's?"""

import math

import numpy as np

from ruler.core.checks import check_same_shape
from ruler.core.types import Predictions
from ruler.metrics.outputs import probabilities
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def activation_distance(forget_predictions: Predictions, oracle_forget_predictions: Predictions) -> PeerValue:
    """How far are the model's probabilities for each forget record from the oracle's? Euclidean, in [0, sqrt(2)].

    Example:
        >>> one, two = (Predictions(np.array([logits]), np.array([0])) for logits in ([900.0, 0.0], [0.0, 900.0]))
        >>> round(activation_distance(one, two).value, 4)
        1.4142
    """
    own, other = probabilities(forget_predictions), probabilities(oracle_forget_predictions)
    check_same_shape(own.shape, other.shape, ("forget_predictions", "oracle_forget_predictions"))
    return average_records(np.linalg.norm(own - other, axis=1))


ACTIVATION_DISTANCE = Peer(
    title="Activation distance",
    question="How far are the probabilities for forget records from the oracle's?",
    compute=activation_distance,
    range=(0, math.sqrt(2)),
    why_no_null="Two oracles differ too; compare with a second one.",
    source="Golatkar et al., 2021; Chundawat et al., 2023",
)
