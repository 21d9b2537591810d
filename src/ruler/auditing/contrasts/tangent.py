"""Tangent: how far along the way from the oracle to the original does a record lie?"""

from collections.abc import Sequence

import numpy as np

from ruler.auditing.alignment import map_rows
from ruler.auditing.contrasts.contrast import Contrast, SideScores
from ruler.auditing.evidence import LayerRows, Side
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.types import FloatArray


def score_tangent(model: LayerRows, oracles: Sequence[LayerRows]) -> SideScores:
    """<u - o, d> of unit rows, where d is the part of (original - o) that is at right angles to o.

    An unrelated model reads 0, the oracle too. With several oracles, d is taken at one and u - o at the next, so that
    no chance of one training run stands on both sides. Models of other axes are turned to the oracle's by an orthogonal
    map fitted on retain records.
    """
    original = model.original or model
    pairs = [(one, oracles[(place + 1) % len(oracles)]) for place, one in enumerate(oracles)]
    found: dict[Side, FloatArray] = {}
    sides: tuple[Side, Side] = ("forget", "held_out")
    for side in sides:
        if side in model.rows:
            found[side] = np.mean([_project(model, original, *pair, side) for pair in pairs], axis=0)
    return found


def _project(model: LayerRows, original: LayerRows, at: LayerRows, other: LayerRows, side: Side) -> FloatArray:
    n = len(model.rows[side])
    scores = np.empty(n)
    for start, stop in iterate_blocks(n, block_rows_for(at.rows["retain"].shape[1])):
        own, before, here, there = (map_rows(one, at, side, slice(start, stop)) for one in (model, original, at, other))
        way = before - here
        way -= np.einsum("ij,ij->i", way, here)[:, None] * here
        scores[start:stop] = np.einsum("ij,ij->i", own - there, way)
    return scores


TANGENT = Contrast(
    title="Tangent",
    score_title="Way from the oracle towards the original",
    question="How far do the forget records still lie on the side of the original model?",
    reading=(
        "Mean way of the forget records from the oracle towards the original, in unit rows. More than for held-out "
        "records means that the layer still holds what the original knew of them. Values below zero say nothing: a "
        "model that was trained longer or shorter than the oracle may lie there."
    ),
    low="further from the original than held-out records",
    high="nearer to the original than held-out records",
    family="layers",
    score=score_tangent,
    is_ruler=True,
    knows_original=True,
    unless="readout",
    why_descriptive="The readout measures the same on the scale of labels, and decides.",
    decides=True,
    residual_side=1,
    needs=("oracle", "original"),
)
