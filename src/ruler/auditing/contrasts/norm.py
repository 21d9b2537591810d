"""Norm: are the forget records' representations longer or shorter than a model that never saw them would make them?"""

from collections.abc import Sequence

import numpy as np

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows


def score_norm(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Logarithm of the norm less that in the oracle, the mean over several; rows of norm 0 count as the least norm."""
    reference = {side: np.mean([one.log_norms[side] for one in oracles], axis=0) for side in model.log_norms}
    return {side: own - reference[side] for side, own in model.log_norms.items()}


NORM = Contrast(
    name="norm",
    title="Norm",
    score_title="Norm relative to the oracle, as a logarithm",
    question="Are the forget records\u2019 representations longer or shorter than the oracle makes them?",
    reading=(
        "Mean logarithm of each forget record\u2019s norm relative to the oracle; 0 means equal length. The test "
        "compares it with the held-out records\u2019."
    ),
    low="shorter than held-out records, next to the oracle",
    high="longer than held-out records, next to the oracle",
    score=score_norm,
    decides=True,
    needs=("oracle",),
)
