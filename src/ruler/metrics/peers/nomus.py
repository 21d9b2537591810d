"""NoMUS: does the model still work, and does its loss not tell members?"""

from ruler.core.types import Predictions
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.metrics.peers.peer import Peer, PeerValue


def nomus(forget_predictions: Predictions, held_out_predictions: Predictions, *, weight: float = 0.5) -> PeerValue:
    """Does the model work on held-out records, and does its loss not tell forget from held-out ones? In [0, 1].

    weight accuracy + (1 - weight) (1 - 2 abs(attack - 0.5)), where ``attack`` is our `membership_inference`.

    Example:
        >>> import numpy as np
        >>> same = Predictions(np.array([[1.0, 0.0]] * 4), np.zeros(4, dtype=np.int64))
        >>> nomus(same, same).value
        1.0
    """
    attack = membership_inference(forget_predictions, held_out_predictions)
    return PeerValue(weight * accuracy(held_out_predictions) + (1 - weight) * (1 - 2 * abs(attack - 0.5)))


NOMUS = Peer(
    title="NoMUS",
    question="Does the model work on held-out records, and does its loss not tell members?",
    compute=nomus,
    range=(0, 1),
    knowledge=-1,
    source="Choi and Na, 2023",
)
