"""Weight distance: how far are the weights from the oracle's?"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ruler.core.errors import InputError
from ruler.metrics.peers.peer import Peer, PeerValue


def weight_distance(weights: Mapping[str, Any], oracle_weights: Mapping[str, Any]) -> PeerValue:
    """How far are the weights from the oracle's, beside the oracle's own length? At least 0.

    norm(w - v) / norm(v) over all parameters of real numbers together; ``layers`` has it by parameter. Two oracles of
    different seeds are about sqrt(2) apart.

    Example:
        >>> weight_distance({"a": [1.0, 2.0]}, {"a": [1.0, 0.0]}).value
        2.0
    """
    if weights.keys() != oracle_weights.keys() or not weights:
        raise InputError("oracle_weights must have the parameters of weights, at least one; got others.")
    apart, length = {}, {}
    for name in weights:
        own, other = np.asarray(weights[name], dtype=np.float64), np.asarray(oracle_weights[name], dtype=np.float64)
        if own.shape != other.shape:
            raise InputError(f"{name} must have one shape in both models; got {own.shape} and {other.shape}.")
        apart[name], length[name] = float(((own - other) ** 2).sum()), float((other**2).sum())
    layers = {name: math.sqrt(apart[name] / length[name]) if length[name] else math.nan for name in weights}
    total = math.fsum(length.values())
    if not total:
        return PeerValue(math.nan, None, layers, "The oracle's weights are all 0.")
    return PeerValue(math.sqrt(math.fsum(apart.values()) / total), None, layers)


WEIGHT_DISTANCE = Peer(
    title="Weight distance",
    question="How far are the weights from the oracle's, beside the oracle's own length?",
    compute=weight_distance,
    range=(0, math.inf),
    why_no_null="Oracles of different seeds are far apart too; compare with a second one.",
    source="Golatkar et al., 2020",
)
