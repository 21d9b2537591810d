"""The numbers behind each figure of the page, apart from their ink (templates/figures.html.j2)."""

from ruler.auditing.report.figures.contrasts import draw_layers, draw_loss_roc, draw_roc
from ruler.auditing.report.figures.records import draw_distributions, draw_plane, draw_ranks
from ruler.auditing.report.figures.scale import draw_across, draw_amounts, draw_scale, draw_strip

__all__ = [
    "draw_across",
    "draw_amounts",
    "draw_distributions",
    "draw_layers",
    "draw_loss_roc",
    "draw_plane",
    "draw_ranks",
    "draw_roc",
    "draw_scale",
    "draw_strip",
]
