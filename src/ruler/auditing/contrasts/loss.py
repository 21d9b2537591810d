"""Loss: does the model still answer for the forget records better than a model that never saw them?"""

from collections.abc import Sequence

import numpy as np

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows


def score_loss(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
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


LOSS = Contrast(
    name="loss",
    title="Loss",
    question="Does the model answer for the forget records better than it would had it never seen them?",
    reading=(
        "Mean loss on the forget records less the oracle\u2019s on the same records (the plain loss without one). "
        "The test compares it with the held-out records\u2019: lower means that the records are remembered."
    ),
    low="answered better than held-out records",
    high="answered worse than held-out records",
    score=score_loss,
    score_members=score_own_loss,
    residual_side=-1,
    needs=("losses",),
    is_by_layer=False,
)
