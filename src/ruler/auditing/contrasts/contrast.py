"""A contrast: one score per record, what it needs, which side means what, and its words for the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ruler.core.types import FloatArray

if TYPE_CHECKING:
    from ruler.auditing.evidence import LayerRows, Side

SideScores = Mapping["Side", FloatArray]
Need = Literal["oracle", "original", "losses", "classes", "relearned"]
Score = Callable[["LayerRows", Sequence["LayerRows"]], SideScores]
"""One model at one layer, and the oracles at that layer -> one number per record, by side."""


@dataclass(frozen=True, eq=False)
class Contrast:
    """How records are scored so that forget and held-out records can be compared.

    Its name is its key in the table and in `Report.metrics`: lower-case letters, digits and underscores.

    Args:
        title: Its name for a reader.
        score: One finite number per record, for "forget" and "held_out" where there are such records, and under
            "retain" for some or all retain records; those of a ruler are the known members, ``LayerRows.members``.
        question: What its number answers.
        reading: How to read the number.
        low: What is said of a forget record whose score is unusually low.
        high: The same for an unusually high one.
        decides: Whether it has a part in the verdict; it then joins the correction for several contrasts.
        why_descriptive: Why it does not decide.
        family: What it speaks of: what the model says ("outputs") or what its layers hold ("layers").
        is_ruler: Differences of its scores measure amounts, so that what remains can be told from them and they are
            compared as they are; other contrasts are compared by ranks.
        is_adjusted: Its scores in the reference models are subtracted, by a fit on held-out records; ``score`` then
            looks at one model only.
        knows_original: The original has a part in its scores, so that those of forget and held-out records scatter
            differently even if nothing remains. Then only their place is compared, by Welch's t test, and only above
            zero: a clean model that was trained otherwise than the oracle may well lie below.
        unless: Name of the contrast that decides in its stead where that can be measured.
        residual_side: Where memory puts forget records if the original is not there to tell: -1 below held-out records,
            1 above, 0 unknown.
        record_tail: Which scores make a single record stand out: only low ones, or both.
        needs: What must be given.
        value: What is averaged for the report, where that is not the score.
        value_by_map: Its number against one oracle, without or with a map between the models' axes; for contrasts that
            such a map changes.
        is_by_layer: Whether it differs from layer to layer.
        symbol: The paper's short name, such as "M2"; the report writes its name where there is none.
        score_title: What the score of one record is, where ``title`` names the mean over records.
        if_absent: What an audit without this contrast did not look for.
        paper_null: The paper's fixed null, if it has one.
        paper_rule: Why that null is not a valid one.

    Example:
        >>> peak = Contrast("Largest value", lambda model, oracles: {
        ...     side: abs(rows).max(axis=1) for side, rows in model.rows.items()})
        >>> peak.decides, peak.needs
        (False, ())
    """

    title: str
    score: Score
    question: str = ""
    reading: str = ""
    low: str = "lower than held-out records"
    high: str = "higher than held-out records"
    decides: bool = False
    family: Literal["outputs", "layers"] = "layers"
    is_ruler: bool = False
    is_adjusted: bool = False
    knows_original: bool = False
    unless: str = ""
    why_descriptive: str = "It is descriptive and has no part in the verdict."
    residual_side: Literal[-1, 0, 1] = 0
    record_tail: Literal["low", "both"] = "both"
    needs: tuple[Need, ...] = ()
    value: Score | None = None
    value_by_map: "Callable[[LayerRows, LayerRows, bool], float] | None" = None
    is_by_layer: bool = True
    symbol: str = ""
    score_title: str = ""
    if_absent: str = ""
    paper_null: float | None = None
    paper_rule: str = ""

    def read_by_paper(self, value: float) -> str:
        """What the paper's rule says of a number: its side of the fixed null, whatever chance may do; "" without."""
        if self.paper_null is None or not self.residual_side:
            return ""
        side = (value > self.paper_null) - (value < self.paper_null)
        return ("erased", "residual", "displaced")[side * self.residual_side]
