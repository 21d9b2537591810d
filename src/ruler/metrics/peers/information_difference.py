"""Information-difference index: how much do the layers still tell about who was to be forgotten?"""

import math

import numpy as np
import numpy.typing as npt

from ruler.metrics.peers.cka import States
from ruler.metrics.peers.linear_probe import cross_validate
from ruler.metrics.peers.peer import Peer, PeerValue


def information_difference(
    forget_states: States,
    retain_states: States,
    oracle_forget_states: States,
    oracle_retain_states: States,
    original_forget_states: States,
    original_retain_states: States,
    forget_groups: npt.ArrayLike | None = None,
    retain_groups: npt.ArrayLike | None = None,
    device: str | None = None,
) -> PeerValue:
    """What share of the original's information on who is a forget record is left? 0 as the oracle, 1 as the original.

    sum over layers of I_model - I_oracle, over that of I_original - I_oracle. I is information of a layer's states on
    whether a record is a forget or a retain record, bounded from below by ln 2 less the balanced cross-entropy of the
    cross-validated `linear_probe`, at least 0 (the authors train a network for the bound).

    Example:
        >>> rng = np.random.default_rng(0)
        >>> same, apart = ({"0": rng.normal(shift, 1, (80, 2))} for shift in (0, 3))
        >>> retain = {"0": rng.normal(0, 1, (80, 2))}
        >>> information_difference(same, retain, same, retain, apart, retain).value
        0.0
    """
    pairs = {
        "model": (forget_states, retain_states),
        "oracle": (oracle_forget_states, oracle_retain_states),
        "original": (original_forget_states, original_retain_states),
    }
    found = {}
    for name, (forget, retain) in pairs.items():
        probed = cross_validate(forget, retain, forget_groups, retain_groups, device)
        if probed is None:
            return PeerValue(math.nan, reason="A probe needs at least two groups of forget and of retain records.")
        found[name] = np.maximum(0, math.log(2) - probed.entropies)  # (layers,)
    largest = float((found["original"] - found["oracle"]).sum())
    if largest <= 0:
        return PeerValue(math.nan, reason="The original's layers tell no more than the oracle's.")
    layers = dict(zip(forget_states, (found["model"] - found["oracle"]).tolist(), strict=True))
    return PeerValue(math.fsum(layers.values()) / largest, None, layers)


INFORMATION_DIFFERENCE = Peer(
    title="Information-difference index",
    question="What share of the original's information on who is a forget record is left in the layers?",
    compute=information_difference,
    null=0.0,
    source="Jeon et al., 2024",
)
