"""The numbers behind each figure of the page, apart from their ink (templates/figures.html.j2)."""

from ruler.auditing.report.figures.distributions import draw_distributions
from ruler.auditing.report.figures.effects import draw_effects
from ruler.auditing.report.figures.gauge import draw_gauge
from ruler.auditing.report.figures.ranks import draw_ranks

__all__ = ["draw_distributions", "draw_effects", "draw_gauge", "draw_ranks"]
