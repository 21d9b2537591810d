"""Results -> the paper's figures: numbers first, ink second."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ruler.core.files import write_atomically
from ruler.core.registry import Registry
from ruler.paper.figures import data, diagnostic_data, diagnostic_draw, draw
from ruler.paper.figures.style import paper_style, render, settle

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "PaperFigure", "write_figures"]


@dataclass(frozen=True)
class PaperFigure:
    """A figure of the paper, or one of ours.

    Args:
        title: What it shows, in one line.
        gather: Results -> the points it shows; empty where its study was not run.
        draw: Points -> figure.
    """

    title: str
    gather: "Callable[[pd.DataFrame], pd.DataFrame]"
    draw: "Callable[[pd.DataFrame], Figure]"


FIGURES: Registry[PaperFigure] = Registry(
    "figure",
    {
        "1": PaperFigure("Outputs pass while M2 is negative", data.gather_figure_1, draw.draw_figure_1),
        "3": PaperFigure("M4 of five methods", data.gather_figure_3, draw.draw_figure_3),
        "4": PaperFigure(
            "M2 and M4 on clinical text", diagnostic_data.gather_figure_4, diagnostic_draw.draw_by_fraction
        ),
        "5": PaperFigure("Calibration of M2 on pairs of oracles", data.gather_figure_5, draw.draw_figure_5),
        "6": PaperFigure("M3 by dataset and forget fraction", data.gather_figure_6, draw.draw_figure_6),
        "7": PaperFigure("M4 by dataset", data.gather_figure_7, draw.draw_figure_7),
        "8": PaperFigure("M2 and M4 on faces", diagnostic_data.gather_figure_8, diagnostic_draw.draw_by_fraction),
        "face_controls": PaperFigure(
            "M4 on faces beside its controls", diagnostic_data.gather_face_controls, diagnostic_draw.draw_face_controls
        ),
    },
)


def write_figures(results: "pd.DataFrame", folder: Path) -> list[Path]:
    """Draw every figure that the results allow, as PNG and PDF, with its numbers as CSV beside it.

    Args:
        results: Checked results, one row a finished cell.
        folder: Where to; made if missing.

    Returns:
        The files written.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    written = []
    for number, figure in FIGURES.items():
        points = figure.gather(results)
        if points.empty:
            continue
        stem = folder / (f"figure_{int(number):02d}" if number.isdigit() else f"figure_{number}")
        contents: dict[str, bytes | str] = {"csv": points.to_csv(index=False, lineterminator="\n")}
        with paper_style():
            drawn = figure.draw(points)
            settle(drawn)
            contents |= {extension: render(drawn, extension) for extension in ("png", "pdf")}
        for extension, content in contents.items():
            write_atomically(stem.with_suffix(f".{extension}"), content)
            written.append(stem.with_suffix(f".{extension}"))
    return written
