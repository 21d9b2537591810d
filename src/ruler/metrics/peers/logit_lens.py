"""Logit lens: from which layers can the answers be read off?"""

import math

import numpy as np

from ruler.core.types import TokenReading
from ruler.metrics.peers.peer import Peer, PeerValue, average_records
from ruler.metrics.peers.uds import weigh_depth

_NO_LENS = PeerValue(math.nan, reason="The tokens were read without lens.")


def logit_lens(forget_tokens: TokenReading) -> PeerValue:
    """How likely are the true answers, read from every layer by the final norm and head?

    Per record, the mean over layers of the mean log-probability of its tokens; at most 0. ``layers`` has the mean over
    records of each.

    Example:
        >>> lens = {"0": np.array([[-4.0, -2.0]]), "1": np.array([[-1.0, -1.0]])}
        >>> found = logit_lens(TokenReading(lens["1"], lens["1"] > 0, lens=lens))
        >>> found.value, found.layers
        (-2.0, {'0': -3.0, '1': -1.0})
    """
    if not forget_tokens.lens:
        return _NO_LENS
    by_layer = {name: np.nanmean(one, axis=1) for name, one in forget_tokens.lens.items()}  # (n,) each
    records = np.mean(list(by_layer.values()), axis=0)
    layers = {name: float(one.mean()) for name, one in by_layer.items()}
    return PeerValue(average_records(records).value, records, layers)


def logit_lens_depth(
    forget_tokens: TokenReading, original_forget_tokens: TokenReading, oracle_forget_tokens: TokenReading
) -> PeerValue:
    """How much of what only the original's layers show is gone? In [0, 1]; 1 is erased.

    The formula of `uds` with the lens in place of patching: d1 is the original's mean log-probability at a layer less
    the oracle's, d2 the original's less the model's.

    Example:
        >>> original, model, oracle = (
        ...     TokenReading(np.full((1, 1), p), np.ones((1, 1), dtype=bool), lens={"0": np.full((1, 1), p)})
        ...     for p in (0.0, -1.0, -4.0))
        >>> logit_lens_depth(model, original, oracle).value
        0.25
    """
    given = (forget_tokens, original_forget_tokens, oracle_forget_tokens)
    if not all(one.lens for one in given):
        return _NO_LENS
    model, original, oracle = ({name: np.nanmean(part, axis=1) for name, part in one.lens.items()} for one in given)
    return weigh_depth(
        {name: original[name] - own for name, own in model.items()},
        {name: original[name] - own for name, own in oracle.items()},
    )


LOGIT_LENS = Peer(
    title="Logit lens",
    question="How likely are the true answers, read from every layer by the final norm and head?",
    compute=logit_lens,
    range=(-math.inf, 0),
    source="nostalgebraist, 2020",
)
LOGIT_LENS_DEPTH = Peer(
    title="Logit lens, depth",
    question="What share of what only the original's layers show, read by the lens, is gone?",
    compute=logit_lens_depth,
    range=(0, 1),
    knowledge=-1,
    null=1.0,
    source="UDS's formula on the logit lens",
)
