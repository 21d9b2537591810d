"""LiRA and U-LiRA: is a record's confidence that of models that saw it, or that of models that did not?"""

import math
from collections.abc import Sequence

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions
from ruler.metrics.outputs import margins
from ruler.metrics.peers.peer import Peer, PeerValue

_LEAST_SPREAD = 1e-6


def lira(
    forget_predictions: Predictions,
    originals_forget_predictions: Sequence[Predictions],
    oracles_forget_predictions: Sequence[Predictions],
) -> PeerValue:
    """What share of the forget records is likelier under models that were trained on them? In [0, 1].

    Per record the logarithm of the ratio of two normal densities of its margin log(p / (1 - p)): fitted to models that
    were trained on it, and to oracles. The aggregate is the share above 0.

    Example:
        >>> def answer(margin):
        ...     return Predictions(np.array([[margin, 0.0]]), np.array([0]))
        >>> found = lira(answer(4.0), [answer(4.0), answer(6.0)], [answer(0.0), answer(2.0)])
        >>> found.value, found.records.round(6).tolist()
        (1.0, [2.0])
    """
    return _judge(forget_predictions, originals_forget_predictions, oracles_forget_predictions)


def u_lira(
    forget_predictions: Predictions,
    shadows_forget_predictions: Sequence[Predictions],
    oracles_forget_predictions: Sequence[Predictions],
) -> PeerValue:
    """`lira` whose first models were trained on the records and then unlearned by the same method."""
    return _judge(forget_predictions, shadows_forget_predictions, oracles_forget_predictions)


def _judge(own: Predictions, seen: Sequence[Predictions], unseen: Sequence[Predictions]) -> PeerValue:
    found = margins(own, "forget_predictions")
    fewest = min(len(seen), len(unseen))
    if fewest < 2:
        return PeerValue(math.nan, reason=f"It needs at least 2 models on each side, since they scatter; got {fewest}.")
    records = _log_density(found, seen) - _log_density(found, unseen)
    return PeerValue(float((records > 0).mean()), records)


def _log_density(found: FloatArray, models: Sequence[Predictions]) -> FloatArray:
    """Logarithm (n,) of the normal density of margins, fitted to each record's margins in the models."""
    table = [margins(one) for one in models]
    if any(one.shape != found.shape for one in table):
        raise InputError(f"models must answer for the same {len(found)} records; got others.")
    mean, spread = np.mean(table, axis=0), np.maximum(np.std(table, axis=0, ddof=1), _LEAST_SPREAD)
    return np.asarray(-0.5 * ((found - mean) / spread) ** 2 - np.log(spread) - 0.5 * math.log(2 * math.pi))


_NO_NULL = "The share of oracles' records above 0 depends on how far both kinds of models are apart; measure an oracle."
LIRA = Peer(
    title="LiRA",
    question="What share of the forget records is likelier under models that were trained on them?",
    compute=lira,
    range=(0, 1),
    why_no_null=_NO_NULL,
    source="Carlini et al., 2022",
)
U_LIRA = Peer(
    title="U-LiRA",
    question="What share of the forget records is likelier under unlearned than under retrained models?",
    compute=u_lira,
    range=(0, 1),
    why_no_null=_NO_NULL,
    source="Hayes et al., 2024",
)
