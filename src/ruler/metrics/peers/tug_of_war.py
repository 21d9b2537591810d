"""Tug-of-war: are all accuracies those of the oracle?"""

from ruler.core.types import Predictions
from ruler.metrics.outputs import accuracy
from ruler.metrics.peers.peer import Peer, PeerValue


def tug_of_war(
    forget_predictions: Predictions,
    retain_predictions: Predictions,
    held_out_predictions: Predictions,
    oracle_forget_predictions: Predictions,
    oracle_retain_predictions: Predictions,
    oracle_held_out_predictions: Predictions,
) -> PeerValue:
    """Are the accuracies on forget, retain and held-out records those of the oracle? In [0, 1]; 1 if all are.

    The product over the three sides of 1 - abs(accuracy - the oracle's).

    Example:
        >>> import numpy as np
        >>> right, wrong = (Predictions(np.array([[1.0, 0.0]]), np.array([label])) for label in (0, 1))
        >>> tug_of_war(*[right] * 6).value, tug_of_war(*[right] * 5, wrong).value
        (1.0, 0.0)
    """
    own = (forget_predictions, retain_predictions, held_out_predictions)
    others = (oracle_forget_predictions, oracle_retain_predictions, oracle_held_out_predictions)
    value = 1.0
    for one, other in zip(own, others, strict=True):
        value *= 1 - abs(accuracy(one) - accuracy(other))
    return PeerValue(value)


TUG_OF_WAR = Peer(
    title="Tug-of-war",
    question="Are the accuracies on forget, retain and held-out records those of the oracle?",
    compute=tug_of_war,
    range=(0, 1),
    knowledge=-1,
    why_no_null="Two oracles differ too; compare with a second one.",
    source="Zhao et al., 2024",
)
