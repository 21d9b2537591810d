"""AUS, the adaptive unlearning score: is accuracy kept, and are forget records like held-out ones?"""

from ruler.core.types import Predictions
from ruler.metrics.outputs import accuracy
from ruler.metrics.peers.peer import Peer, PeerValue


def aus(
    forget_predictions: Predictions, held_out_predictions: Predictions, original_held_out_predictions: Predictions
) -> PeerValue:
    """Is the original's accuracy kept, and is that on forget records the one on held-out records? In [0, 2]; 1 if both.

    (1 - (a_original - a)) / (1 + abs(a - a_forget)), with accuracies ``a`` on held-out records; the form for forget
    sets drawn from all classes.

    Example:
        >>> import numpy as np
        >>> right, wrong = (Predictions(np.array([[1.0, 0.0]]), np.array([label])) for label in (0, 1))
        >>> aus(right, right, right).value, aus(wrong, right, right).value, aus(right, wrong, right).value
        (1.0, 0.5, 0.0)
    """
    own, forget = accuracy(held_out_predictions), accuracy(forget_predictions)
    return PeerValue((1 - (accuracy(original_held_out_predictions) - own)) / (1 + abs(own - forget)))


AUS = Peer(
    title="AUS",
    question="Is accuracy kept, and is that on forget records the one on held-out records?",
    compute=aus,
    range=(0, 2),
    knowledge=-1,
    source="Cotogni et al., 2023",
)
