"""The numbers behind each figure of the page, apart from their ink (templates/figures.html.j2)."""

from ruler.auditing.report.figures.distributions import SCORES, draw_distributions
from ruler.auditing.report.figures.effects import draw_effects
from ruler.auditing.report.figures.gauge import draw_gauge
from ruler.auditing.report.figures.layers import draw_layers
from ruler.auditing.report.figures.ranks import draw_ranks
from ruler.auditing.report.figures.roc import draw_roc

__all__ = ["SCORES", "draw_distributions", "draw_effects", "draw_gauge", "draw_layers", "draw_ranks", "draw_roc"]
