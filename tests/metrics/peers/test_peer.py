"""What every peer's metric states and does."""

import math
from pathlib import Path

import numpy as np
import pytest

from ruler.core.errors import InputError, UnknownNameError
from ruler.core.types import Predictions
from ruler.metrics.peers import NEEDS, OWN, PEERS, PREFIXES, Peer, PeerValue, measure_peers
from ruler.metrics.peers.peer import average_records


def test_other_packages_add_theirs():
    peer = Peer("Mine", "How many?", lambda forget_tokens: PeerValue(3.0), needs=("forget_tokens",))
    PEERS.register("mine_for_tests", peer)
    assert measure_peers({"forget_tokens": 1}, ["mine_for_tests"])["mine_for_tests"].value == 3
    with pytest.raises(UnknownNameError, match="Did you mean 'min_k'"):
        measure_peers({}, ["mink"])


def test_nan_needs_a_reason():
    with pytest.raises(InputError, match="reason must be given"):
        PeerValue(math.nan)
    found = average_records(np.array([np.nan, np.nan]), why_none="Nothing counts.")
    assert math.isnan(found.value)
    assert found.reason == "Nothing counts."


def test_predictions_that_do_not_line_up_are_refused():
    """A shuffling loader gives every model its own order, and public code compares them all the same."""
    rng = np.random.default_rng(0)
    one = Predictions(rng.normal(size=(30, 3)), rng.integers(0, 3, 30))
    order = rng.permutation(30)
    moved = Predictions(one.logits[order], one.labels[order])
    for name in ("js_divergence", "activation_distance", "completeness", "zrf"):
        other = "random_forget_predictions" if name == "zrf" else "oracle_forget_predictions"
        assert not math.isnan(PEERS[name].measure({"forget_predictions": one, other: one}).value)
        with pytest.raises(InputError, match=f"{other} must be of the same records in the same order as forget_pred"):
            PEERS[name].measure({"forget_predictions": one, other: moved})
    given = {"forget_predictions": one, "originals_forget_predictions": [one, one]}
    with pytest.raises(InputError, match="oracles_forget_predictions must be of the same records"):
        PEERS["lira"].measure({**given, "oracles_forget_predictions": [one, moved]})


def write_row(name, peer):
    low, high = (f"{end:g}".replace("-inf", "\u2212\u221e").replace("inf", "\u221e") for end in peer.range)
    needs = ", ".join(f"`{need}`" for need in peer.needs)
    end = {1: "high", -1: "low", 0: "not about it"}[peer.knowledge]
    null = "" if math.isnan(peer.null) else f"{peer.null:g}"
    return f"| `{name}` | {peer.question} | {needs} | {low} to {high} | {end} | {null} | {peer.source} |"


def test_page_lists_every_metric_and_need():
    page = (Path(__file__).parents[3] / "docs" / "peers.md").read_text(encoding="utf-8")
    rows = [write_row(name, peer) for name, peer in OWN.items()]
    missing = [row for row in rows if row not in page]
    assert not missing, "docs/peers.md lacks:\n" + "\n".join(missing)
    for need, words in NEEDS.items():
        assert f"| `{need}` | {words} |" in page
    for prefix, words in PREFIXES.items():
        assert f"| `{prefix}` | {words} |" in page
