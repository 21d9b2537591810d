"""ZRF, the zero-retrain-forgetting score: does the model answer like an untrained one?"""

from ruler.core.types import Predictions
from ruler.metrics.peers.js_divergence import diverge
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def zrf(forget_predictions: Predictions, random_forget_predictions: Predictions) -> PeerValue:
    """Does the model answer on forget records as an untrained one does? 1 - mean JS divergence, in bits; in [0, 1].

    1 means random answers, which is not what a retrained model gives.

    Example:
        >>> import numpy as np
        >>> flat, sure = (Predictions(np.array([[scale, 0.0]]), np.array([0])) for scale in (0.0, 900.0))
        >>> zrf(flat, flat).value, round(zrf(sure, flat).value, 3)
        (1.0, 0.689)
    """
    return average_records(1 - diverge(forget_predictions, random_forget_predictions, "random_forget_predictions"))


ZRF = Peer(
    title="ZRF",
    question="Does the model answer on forget records as an untrained one does?",
    compute=zrf,
    range=(0, 1),
    knowledge=-1,
    why_no_null="A retrained model does not answer at random; measure the oracle for comparison.",
    source="Chundawat et al., 2023",
)
