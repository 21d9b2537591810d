"""Loss: does the model still answer for the forget records better than a model that never saw them?"""

from collections.abc import Mapping, Sequence

import numpy as np

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows, Side
from ruler.core.types import FloatArray


def score_loss(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Place of a record's loss among all, less its place in the oracle (the mean over several); the loss without one.

    A place is the share of forget and held-out records with a lower loss in the same model, ties half. Places are
    compared, not losses: an oracle that is sure and wrong has losses of any size, and their scatter would hide what
    the model knows.
    """
    assert model.losses is not None
    known = [one.losses for one in oracles if one.losses is not None]
    if not known:
        return dict(model.losses)
    own, others = _place(model.losses), [_place(one) for one in known]
    return {side: places - np.mean([one[side] for one in others], axis=0) for side, places in own.items()}


def subtract_loss(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """The model's loss on each record less the oracle's, the mean over several; the loss itself without an oracle."""
    assert model.losses is not None
    known = [one.losses for one in oracles if one.losses is not None]
    if not known:
        return dict(model.losses)
    return {side: own - np.mean([one[side] for one in known], axis=0) for side, own in model.losses.items()}


def score_own_loss(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """The model's own loss: known members were trained on by the oracle too, so its loss would hide them."""
    assert model.losses is not None
    return {"held_out": model.losses["held_out"], "retain": model.losses["retain"][model.members]}


def _place(losses: Mapping[Side, FloatArray]) -> SideScores:
    pool = np.sort(np.concatenate([losses[side] for side in ("forget", "held_out") if side in losses]))
    return {
        side: (np.searchsorted(pool, own, side="left") + np.searchsorted(pool, own, side="right")) / (2.0 * len(pool))
        for side, own in losses.items()
    }


LOSS = Contrast(
    title="Loss",
    score_title="Rank of the loss among all records, minus its rank in the oracle if there is one",
    if_absent="No losses were given, so memory that shows only in the model\u2019s answers was not looked for.",
    question="Does the model answer for the forget records better than it would had it never seen them?",
    reading=(
        "Mean loss on the forget records minus the oracle\u2019s (the plain loss without an oracle). The test compares "
        "the rank of each record\u2019s loss with its rank in the oracle. Lower ranks than for held-out records mean "
        "that the records are remembered."
    ),
    low="answered better than held-out records",
    high="answered worse than held-out records",
    score=score_loss,
    score_members=score_own_loss,
    value=subtract_loss,
    record_score=subtract_loss,
    decides=True,
    residual_side=-1,
    needs=("losses",),
    is_by_layer=False,
)
