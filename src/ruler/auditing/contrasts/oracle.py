"""M1, M2, M3 and the norm: where a record lies next to a model that never saw it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows
from ruler.metrics.paper import subtract_baseline

Modes = Sequence[bool] | None
"""Whether to compare through a map between the models' axes, for each oracle; None decides by the models' pairing."""


def score_oracle_similarity(model: LayerRows, oracles: Sequence[LayerRows], modes: Modes = None) -> SideScores:
    """Cosine similarity of each record to itself in the oracle, the mean over several oracles.

    Of retain records those that no map between models was fitted on, where a map was needed.
    """
    chosen = [model.pair_with(oracle).is_aligned for oracle in oracles] if modes is None else modes
    found = [dict(model.compare(oracle, is_aligned=mode)) for oracle, mode in zip(oracles, chosen, strict=True)]
    n_scored = min(len(one["retain"]) for one in found)
    for one in found:
        if len(one["retain"]) > n_scored:
            one["retain"] = one["retain"][model.halves[1]]
    return {side: np.mean([one[side] for one in found], axis=0) for side in found[0]}


def subtract_retain_median(model: LayerRows, oracles: Sequence[LayerRows], modes: Modes = None) -> SideScores:
    """Similarities minus the median over the retain records."""
    scores = score_oracle_similarity(model, oracles, modes)
    return {side: subtract_baseline(own, scores["retain"]) for side, own in scores.items()}


def score_shift(model: LayerRows, oracles: Sequence[LayerRows], modes: Modes = None) -> SideScores:
    """Similarity to the oracle minus the original model's, both through a map if the unlearned model needs one."""
    assert model.original is not None
    modes = [model.pair_with(oracle).is_aligned for oracle in oracles] if modes is None else modes
    before = score_oracle_similarity(model.original, oracles, modes)
    return {side: now - before[side] for side, now in score_oracle_similarity(model, oracles, modes).items()}


def score_norm(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """Logarithm of the norm minus that in the oracle, the mean over several; rows of norm 0 count as the least norm."""
    reference = {side: np.mean([one.log_norms[side] for one in oracles], axis=0) for side in model.log_norms}
    return {side: own - reference[side] for side, own in model.log_norms.items()}


def _average_by_map(value: Any, model: LayerRows, oracle: LayerRows, is_aligned: bool) -> float:
    return float(value(model, [oracle], [is_aligned])["forget"].mean())


M2 = Contrast(
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
    value_by_map=partial(_average_by_map, subtract_retain_median),
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
    symbol="M1",
    title="Oracle similarity",
    score_title="Similarity to the oracle (M1)",
    question="Are the forget records where a model that never saw them would put them?",
    reading=(
        "Mean cosine similarity to the oracle, a model retrained without them; 1 means the same direction. "
        "It is descriptive and has no part in the verdict."
    ),
    decides=False,
    why_descriptive="M1 has no null of its own: M2 is M1 minus its baseline, and decides.",
    value=None,
    value_by_map=partial(_average_by_map, score_oracle_similarity),
    paper_null=None,
    paper_rule="",
)

M3 = Contrast(
    symbol="M3",
    title="Representation shift",
    score_title="Shift towards the oracle (M3)",
    question="Did unlearning move the forget records towards the oracle?",
    reading="Above 0: towards; below 0: away. It is descriptive and has no part in the verdict.",
    low="moved away from the oracle",
    high="moved towards the oracle",
    score=score_shift,
    why_descriptive=(
        "M3 says whether unlearning moved forget records towards the oracle more than it moved held-out ones."
    ),
    value_by_map=partial(_average_by_map, score_shift),
    needs=("oracle", "original"),
    paper_null=0.0,
    paper_rule="A shift says which way records moved, not whether they arrived.",
)

NORM = Contrast(
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
