"""M4: does a record lie unusually close to, or far from, the records that were kept?"""

from collections.abc import Sequence

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows
from ruler.metrics.paper import rank_within


def score_nearest(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Similarity to the nearest retain record in the model itself."""
    return {side: found.similarity[:, 0] for side, found in model.nearest.items()}


def rank_nearest(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Percentile rank of each record's score among the retain records' own."""
    scores = score_nearest(model, oracles)
    return {side: rank_within(own, scores["retain"]) for side, own in scores.items() if side != "retain"}


M4 = Contrast(
    symbol="M4",
    title="Percentile rank",
    score_title="Similarity to the nearest retain record (M4)",
    question="Do the forget records lie unusually close to, or far from, the records that were kept?",
    reading=(
        "Mean rank of each forget record\u2019s similarity to its nearest retain record, among those of the "
        "retain records. The test compares these similarities with those of the held-out records."
    ),
    low="further from retain records than held-out records",
    high="nearer to retain records than held-out records",
    score=score_nearest,
    value=rank_nearest,
    decides=True,
    residual_side=1,
    paper_null=0.5,
    paper_rule=(
        "All ranks are taken among the same retain records and ties take the top rank, so 0.5 is rejected too often "
        "even if nothing is remembered. The choice of the records alone moves it, too."
    ),
)
