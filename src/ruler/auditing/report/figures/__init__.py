"""The numbers behind each figure of the page, apart from their ink (templates/figures.html.j2)."""

from ruler.auditing.report.figures.contrasts import draw_layers, draw_loss_roc, draw_roc, fit_effects
from ruler.auditing.report.figures.records import draw_distributions, draw_plane, draw_ranks

__all__ = ["draw_distributions", "draw_layers", "draw_loss_roc", "draw_plane", "draw_ranks", "draw_roc", "fit_effects"]
