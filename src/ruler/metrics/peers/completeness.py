"""Completeness: does the model choose the classes that the oracle chooses?"""

import numpy as np

from ruler.core.checks import check_same_shape
from ruler.core.types import Predictions
from ruler.metrics.outputs import probabilities
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def completeness(forget_predictions: Predictions, oracle_forget_predictions: Predictions) -> PeerValue:
    """For what share of the forget records do the model and the oracle choose the same class? In [0, 1].

    Example:
        >>> one, two = (Predictions(np.array(rows), np.array([0, 0])) for rows in ([[2, 1], [0, 1]], [[3, 0], [1, 0]]))
        >>> completeness(one, two).value
        0.5
    """
    own, other = probabilities(forget_predictions), probabilities(oracle_forget_predictions)
    check_same_shape(own.shape, other.shape, ("forget_predictions", "oracle_forget_predictions"))
    return average_records((own.argmax(axis=1) == other.argmax(axis=1)).astype(np.float64))


COMPLETENESS = Peer(
    title="Completeness",
    question="For what share of the forget records do model and oracle choose the same class?",
    compute=completeness,
    range=(0, 1),
    knowledge=-1,
    why_no_null="Two oracles differ too; compare with a second one.",
    source="Cao and Yang, 2015",
)
