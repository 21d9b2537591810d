"""Extraction strength: how little of an answer must be shown before the model gives the rest?"""

import numpy as np

from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records


def extraction_strength(forget_tokens: TokenReading) -> PeerValue:
    """How little of an answer must be shown before greedy decoding gives the rest?

    1 - k / length per record, where k is the least number of true tokens from which greedy decoding completes the
    answer; in [0, 1], 1 if the prompt alone is enough. Read without decoding: after k true tokens greedy decoding gives
    the rest exactly if every later token is the likeliest one given the true tokens before it.

    Example:
        >>> reading = TokenReading(np.zeros((1, 4)), np.array([[True, False, True, True]]))
        >>> extraction_strength(reading).value
        0.5
    """
    lengths = forget_tokens.lengths
    places = np.arange(1, forget_tokens.hits.shape[1] + 1)
    is_miss = ~forget_tokens.hits & (places <= lengths[:, None])
    n_shown = (is_miss * places).max(axis=1)  # up to and with the last miss
    return average_records(1 - n_shown / lengths)


EXTRACTION_STRENGTH = Peer(
    title="Extraction strength",
    question="How little of an answer must be shown before the model completes it?",
    compute=extraction_strength,
    range=(0, 1),
    source="Carlini et al., 2021; open-unlearning",
)
