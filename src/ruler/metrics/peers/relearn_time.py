"""Relearn time and anamnesis index: how fast does the model learn the forget records again?"""

import math

import numpy as np
import numpy.typing as npt

from ruler.core.types import Predictions
from ruler.metrics.outputs import accuracy
from ruler.metrics.peers.peer import Peer, PeerValue

SLACK = 0.05


def relearn_time(relearn_accuracies: npt.ArrayLike, original_forget_predictions: Predictions) -> PeerValue:
    """After how many epochs of training on them is the original's accuracy on the forget records reached again?

    Reached is an accuracy of at least 95% of the original's; 0 if the model has it before. NaN if it is not reached.

    Args:
        relearn_accuracies: (epochs + 1,) after 0, 1, 2, ... epochs.
        original_forget_predictions: The original's answers on the forget records.

    Example:
        >>> right = Predictions(np.array([[1.0, 0.0]]), np.array([0]))
        >>> relearn_time([0.1, 0.6, 0.96, 1.0], right).value
        2.0
    """
    wanted = (1 - SLACK) * accuracy(original_forget_predictions)
    reached = np.flatnonzero(np.asarray(relearn_accuracies, dtype=np.float64) >= wanted)
    if not len(reached):
        return PeerValue(math.nan, reason="The original's accuracy was not reached; train for more epochs.")
    return PeerValue(float(reached[0]))


def anamnesis_index(
    relearn_accuracies: npt.ArrayLike,
    oracle_relearn_accuracies: npt.ArrayLike,
    original_forget_predictions: Predictions,
) -> PeerValue:
    """How long does relearning take, as a multiple of the oracle's time? 1 as the oracle; less if knowledge is left.

    Example:
        >>> right = Predictions(np.array([[1.0, 0.0]]), np.array([0]))
        >>> anamnesis_index([0.1, 1.0], [0.1, 0.5, 1.0], right).value
        0.5
    """
    own = relearn_time(relearn_accuracies, original_forget_predictions)
    other = relearn_time(oracle_relearn_accuracies, original_forget_predictions)
    if own.reason or other.reason:
        return PeerValue(math.nan, reason=own.reason or other.reason)
    if other.value == 0:
        return PeerValue(math.nan, reason="The oracle has the original's accuracy without any training.")
    return PeerValue(own.value / other.value)


RELEARN_TIME = Peer(
    title="Relearn time",
    question="After how many epochs of training on them are the forget records known again?",
    compute=relearn_time,
    range=(0, math.inf),
    knowledge=-1,
    source="Golatkar et al., 2020",
)
ANAMNESIS_INDEX = Peer(
    title="Anamnesis index",
    question="How long does relearning the forget records take, as a multiple of the oracle's time?",
    compute=anamnesis_index,
    range=(0, math.inf),
    knowledge=-1,
    null=1.0,
    source="Chundawat et al., 2023",
)
