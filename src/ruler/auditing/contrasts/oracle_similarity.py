"""M1 and M2: is a record where a model that never saw it would put it?"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows
from ruler.metrics.paper import subtract_baseline


def score_oracle_similarity(
    model: LayerRows, oracles: Sequence[LayerRows], modes: Sequence[bool] | None = None
) -> SideScores:
    """Cosine similarity of each record to itself in the oracle, the mean over several oracles.

    Of retain records those that no map between models was fitted on, where a map was needed. ``modes`` says whether
    to use a map for each oracle; None decides by the models' pairing.
    """
    chosen = [model.pair_with(oracle).is_aligned for oracle in oracles] if modes is None else modes
    found = [dict(model.compare(oracle, is_aligned=mode)) for oracle, mode in zip(oracles, chosen, strict=True)]
    n_scored = min(len(one["retain"]) for one in found)
    for one in found:
        if len(one["retain"]) > n_scored:
            one["retain"] = one["retain"][model.halves[1]]
    return {side: np.mean([one[side] for one in found], axis=0) for side in found[0]}


def subtract_retain_median(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Similarities less the median over the retain records."""
    scores = score_oracle_similarity(model, oracles)
    return {side: subtract_baseline(own, scores["retain"]) for side, own in scores.items()}


def average_similarity(model: LayerRows, oracle: LayerRows, is_aligned: bool) -> float:
    """M1 against one oracle, without or with a map."""
    return float(model.compare(oracle, is_aligned=is_aligned)["forget"].mean())


def average_gap(model: LayerRows, oracle: LayerRows, is_aligned: bool) -> float:
    """M2 against one oracle, without or with a map."""
    scores = model.compare(oracle, is_aligned=is_aligned)
    return float(subtract_baseline(scores["forget"], scores["retain"]).mean())


M2 = Contrast(
    name="m2",
    symbol="M2",
    title="Calibration gap",
    score_title="Similarity to the oracle (M2)",
    question="Do the forget records agree with the oracle as well as other records do?",
    reading=(
        "Mean similarity of the forget records minus the median of the retain records. The test compares the forget "
        "records\u2019 similarities with those of the held-out records."
    ),
    low="further from the oracle than held-out records",
    high="nearer to the oracle than held-out records",
    score=score_oracle_similarity,
    value=subtract_retain_median,
    value_by_map=average_gap,
    decides=True,
    residual_side=-1,
    record_tail="low",
    needs=("oracle",),
    paper_null=0.0,
    paper_rule=(
        "A mean minus a median is not 0 for skewed similarities: perfectly unlearned models fall below 0 in most runs."
    ),
)

M1 = replace(
    M2,
    name="m1",
    symbol="M1",
    title="Oracle similarity",
    score_title="Similarity to the oracle (M1)",
    question="Are the forget records where a model that never saw them would put them?",
    reading=(
        "Mean cosine similarity to the oracle, a model retrained without them; 1 means the same direction. "
        "It is descriptive and has no part in the verdict."
    ),
    decides=False,
    why_descriptive="M1 has no null of its own: M2 is M1 less its baseline, and decides.",
    value=None,
    value_by_map=average_similarity,
    paper_null=None,
    paper_rule="",
)
