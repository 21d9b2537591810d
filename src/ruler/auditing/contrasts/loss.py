"""Loss: does the model still answer for the forget records better than a model that never saw them?"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows
from ruler.core.types import FloatArray

_LARGEST_LOGIT = 27.6  # of a probability of 1e-12


def compress_confidence(losses: npt.ArrayLike) -> FloatArray:
    """How sure is a model of the right answer, on a scale without ends: arsinh(log(p / (1 - p))), p = exp(-loss).

    The logit makes the two ends of the scale alike; arsinh leaves small logits as they are and takes the logarithm of
    large ones, whose size says little: a model that is sure and wrong may be wrong by any amount.

    Example:
        >>> compress_confidence([0.0, np.log(2), 30.0]).round(2).tolist()
        [4.01, 0.0, -4.01]
    """
    loss = np.clip(np.asarray(losses, dtype=np.float64), 1e-300, None)
    logits = np.clip(-loss - np.log(-np.expm1(-loss)), -_LARGEST_LOGIT, _LARGEST_LOGIT)
    return np.asarray(np.arcsinh(logits))


_SCORES: Mapping[str, Callable[[npt.ArrayLike], FloatArray]] = {
    "confidence": compress_confidence,
    "likelihood": lambda losses: -np.asarray(losses, dtype=np.float64),
    "error": lambda losses: -np.sqrt(np.abs(np.asarray(losses, dtype=np.float64))),
}
"""From a loss to a score that grows with memory, by what the loss is: of a class, per token, squared."""


def score_answers(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """How well the model answers for each record; of retain records the known members."""
    assert model.losses is not None
    score = _SCORES[model.loss_kind]
    return {side: score(own[model.members] if side == "retain" else own) for side, own in model.losses.items()}


def subtract_loss(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """The model's loss on each record less the oracle's, the mean over several; the loss itself without an oracle."""
    assert model.losses is not None
    return _subtract(model.losses, [one.losses for one in oracles if one.losses is not None])


def _subtract(own: SideScores, others: Sequence[SideScores]) -> SideScores:
    if not others:
        return dict(own)
    return {side: losses - np.mean([one[side] for one in others], axis=0) for side, losses in own.items()}


def score_relearned(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """How well each record is answered after the model relearned the other half of all records.

    Reference models relearn nothing: what they answer as they are shows how hard the records are.
    """
    losses = model.losses if model.relearned is None else model.relearned
    assert losses is not None
    score = _SCORES[model.loss_kind]
    return {side: score(own[model.members] if side == "retain" else own) for side, own in losses.items()}


LOSS = Contrast(
    title="Loss",
    score_title="Confidence in the right answer, beyond what reference models have",
    if_absent="No losses were given, so memory that shows only in the model\u2019s answers was not looked for.",
    question="Does the model answer for the forget records better than it would had it never seen them?",
    reading=(
        "Mean loss on the forget records minus the oracle\u2019s (the plain loss without an oracle). The test compares "
        "the model\u2019s confidence in each record\u2019s right answer, after subtracting what reference models have. "
        "More confidence than in held-out records means that the records are remembered."
    ),
    low="answered worse than held-out records",
    high="answered better than held-out records",
    family="outputs",
    score=score_answers,
    value=subtract_loss,
    is_ruler=True,
    is_adjusted=True,
    decides=True,
    residual_side=1,
    record_tail="both",
    needs=("losses",),
    is_by_layer=False,
)

RELEARNED = Contrast(
    title="Relearned",
    score_title="Confidence in the right answer after relearning other records",
    question="Does relearning one half of the records bring back the other half?",
    reading=(
        "Mean confidence in the forget records\u2019 right answers after the model was trained for one epoch on the "
        "other half of the forget records and on held-out records like them. What comes back was still inside."
    ),
    low="come back less than held-out records",
    high="come back more than held-out records",
    family="layers",
    score=score_relearned,
    is_ruler=True,
    is_adjusted=True,
    decides=True,
    residual_side=1,
    needs=("relearned",),
    is_by_layer=False,
)
