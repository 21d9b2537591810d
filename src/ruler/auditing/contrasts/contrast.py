"""A contrast: one score per record, what it needs, which side means what, and its words for the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ruler.core.types import FloatArray

if TYPE_CHECKING:
    from ruler.auditing.evidence import LayerRows, Side

SideScores = Mapping["Side", FloatArray]
Need = Literal["oracle", "original", "losses"]


@dataclass(frozen=True, eq=False)
class Contrast:
    """How records are scored so that forget and held-out records can be compared.

    Args:
        name: Its key in `Report.metrics`.
        title: Its name for a reader.
        question: What its number answers.
        reading: How to read the number.
        low: What is said of a forget record whose score is unusually low.
        high: The same for an unusually high one.
        score: One model at one layer, and the models that it is compared with -> one number per record, by side.
        decides: Whether it has a part in the verdict.
        residual_side: Where memory puts forget records if the original is not there to tell: -1 below held-out records,
            1 above, 0 unknown.
        record_tail: Which scores make a single record stand out: only low ones, or both.
        needs: What must be given.
        score_members: Scores of the known members (under "retain", those in ``LayerRows.members`` alone) and of the
            held-out records, where these are other scores than ``score`` gives.
        value: What is averaged for the report, where that is not the score.
        is_by_layer: Whether it differs from layer to layer.
        paper_null: The paper's fixed null, if it has one.
        paper_rule: Why that null is not a valid one.
    """

    name: str
    title: str
    question: str
    reading: str
    low: str
    high: str
    score: "Callable[[LayerRows, Sequence[LayerRows]], SideScores]"
    decides: bool = True
    residual_side: Literal[-1, 0, 1] = 0
    record_tail: Literal["low", "both"] = "both"
    needs: tuple[Need, ...] = ()
    score_members: "Callable[[LayerRows, Sequence[LayerRows]], SideScores] | None" = None
    value: "Callable[[LayerRows, Sequence[LayerRows]], SideScores] | None" = None
    is_by_layer: bool = True
    paper_null: float | None = None
    paper_rule: str = ""
