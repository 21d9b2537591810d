"""The verdict's one number for everyone: in how many of 100 tries is a forget record told from a held-out one?"""

import math
from dataclasses import dataclass

from ruler.auditing.findings import Report
from ruler.auditing.report.figures.axes import Axis
from ruler.auditing.report.wording import count_right_guesses, describe_telling, find_strongest


@dataclass(frozen=True)
class Gauge:
    """Right guesses on a scale from chance to certainty, beside the margin.

    Args:
        n_right: Of 100; 50 is chance.
        bound: Most that still counts as erased.
        by: Which contrast it comes from, and at which layer.
        x: Of the mark.
        low_x: Where its interval begins, or the mark itself without one.
        high_x: Where it ends.
        bound_x: Of the bound.
    """

    n_right: int
    bound: int
    by: str
    x: float
    low_x: float
    high_x: float
    bound_x: float


def draw_gauge(report: Report) -> Gauge | None:
    """The strongest contrast as right guesses; None where no metric has one, or none can be trusted."""
    strongest = find_strongest(report)
    if strongest is None:
        return None
    axis = Axis(0.5, 1.0)
    low, high = strongest.interval
    if not (math.isfinite(low) and math.isfinite(high)):
        low = high = strongest.effect
    if strongest.effect < 0.5:
        low, high = 1 - high, 1 - low
    return Gauge(
        n_right=count_right_guesses(strongest.effect),
        bound=round(100 * (0.5 + report.settings.margin)),
        by=describe_telling(strongest),
        x=axis.place(max(strongest.effect, 1 - strongest.effect)),
        low_x=axis.place(low),
        high_x=axis.place(high),
        bound_x=axis.place(0.5 + report.settings.margin),
    )
