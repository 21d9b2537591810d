"""Every peer's metric keeps the contract, and the contract sees who does not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from ruler.metrics.peers import OWN, Peer, PeerValue
from ruler.metrics.peers.peer import average_records
from ruler.testing.peers import check_peer


@pytest.mark.parametrize("name", OWN)
def test_contract(name):
    check_peer(name, OWN[name])
    assert OWN[name].source.strip()


def spoil(states):
    states["low"][:] = 0
    return PeerValue(0.5)


def count_calls(forget_tokens, calls=[]):  # noqa: B006
    calls.append(1)
    return PeerValue(float(len(calls)))


BROKEN = {
    "its range": (replace(OWN["probability"], range=(2, 3)), "must lie from 2 to 3"),
    "its null": (replace(OWN["uds"], null=3.0), "must have its null in its range"),
    "its question": (replace(OWN["uds"], question="Depth"), "as a question"),
    "a record": (
        replace(OWN["min_k"], compute=lambda forget_tokens: average_records(-np.ones(3))),
        "one number per forget record",
    ),
    "the order": (
        replace(OWN["min_k"], compute=lambda forget_tokens: PeerValue(float(forget_tokens.log_probs[0, 0]))),
        "another order",
    ),
    "the order of others": (
        replace(
            OWN["nomus"],
            compute=lambda forget_predictions, held_out_predictions: PeerValue(
                float(held_out_predictions.logits[0, 0])
            ),
            range=(-math.inf, math.inf),
        ),
        "same with other records in another order",
    ),
    "the order of models": (
        replace(
            OWN["klom"],
            compute=lambda shadows_forget_predictions, oracles_forget_predictions: PeerValue(
                float(oracles_forget_predictions[0].logits.max())
            ),
        ),
        "same with several models in another order",
    ),
    "repetition": (replace(OWN["min_k"], compute=count_calls, range=(0, math.inf)), "same called again"),
    "what was given": (
        Peer("Spoiler", "What?", lambda forget_states: spoil(forget_states), needs=("forget_states",)),
        "must leave what it is given",
    ),
}


@pytest.mark.parametrize(("peer", "message"), BROKEN.values(), ids=BROKEN)
def test_the_contract_sees_what_is_broken(peer, message):
    with pytest.raises(AssertionError, match=message):
        check_peer("broken", peer)


def test_other_needs_can_be_given():
    peer = Peer("Own", "How much?", lambda temperature: PeerValue(temperature), needs=("temperature",))
    check_peer("own", peer, {"temperature": 3.0})
    with pytest.raises(AssertionError, match="temperature must be in NEEDS"):
        check_peer("own", peer)
