"""JS divergence: how far are the model's answers from the oracle's?"""

import math

import numpy as np
from scipy.special import rel_entr

from ruler.core.checks import check_same_shape
from ruler.core.types import FloatArray, Predictions
from ruler.metrics.outputs import probabilities
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def js_divergence(forget_predictions: Predictions, oracle_forget_predictions: Predictions) -> PeerValue:
    """How far are the model's beliefs about each forget record from the oracle's? In [0, 1], in bits.

    JS(p, q) = (KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2, summed over classes; the mean over records.

    Example:
        >>> one, two = (Predictions(np.array([logits]), np.array([0])) for logits in ([900.0, 0.0], [0.0, 900.0]))
        >>> js_divergence(one, two).value, js_divergence(one, one).value
        (1.0, 0.0)
    """
    return average_records(diverge(forget_predictions, oracle_forget_predictions, "oracle_forget_predictions"))


def diverge(own: Predictions, other: Predictions, name: str) -> FloatArray:
    """JS divergence (n,) in bits between two models' beliefs about the same records; errors say ``name``."""
    left, right = probabilities(own, "forget_predictions"), probabilities(other, name)
    check_same_shape(left.shape, right.shape, ("forget_predictions", name))
    middle = (left + right) / 2
    total = sum((rel_entr(one, middle).sum(axis=1) for one in (left, right)), np.zeros(len(left)))
    return np.asarray(np.maximum(0, total / (2 * math.log(2))))


JS_DIVERGENCE = Peer(
    title="JS divergence",
    question="How far are the beliefs about forget records from the oracle's, in bits?",
    compute=js_divergence,
    range=(0, 1),
    why_no_null="Two oracles differ too; compare with a second one.",
    source="Chundawat et al., 2023",
)
