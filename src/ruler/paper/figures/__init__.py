"""Results -> the paper's figures: numbers first, ink second."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.registry import Registry
from ruler.paper.figures import draw, gather
from ruler.paper.tables.language import list_layers

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "PaperFigure", "paper_style", "render", "write_figures"]

_STYLE: dict[str, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "pdf.fonttype": 42,  # real fonts, so that text in the PDF can be searched
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
}
_METADATA: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}


@dataclass(frozen=True)
class PaperFigure:
    """A figure: results -> the points it shows, none where its study was not run; and points -> ink."""

    gather: "Callable[[pd.DataFrame], pd.DataFrame]"
    draw: "Callable[[pd.DataFrame], Figure]"


FIGURES: Registry[PaperFigure] = Registry(
    "figure",
    {
        "1": PaperFigure(gather.gather_figure_1, draw.draw_figure_1),
        "3": PaperFigure(gather.gather_figure_3, draw.draw_figure_3),
        "4": PaperFigure(partial(gather.gather_by_fraction, study="clinical", table="text"), draw.draw_by_fraction),
        "5": PaperFigure(gather.gather_figure_5, draw.draw_figure_5),
        "6": PaperFigure(gather.gather_figure_6, draw.draw_figure_6),
        "7": PaperFigure(gather.gather_figure_7, draw.draw_figure_7),
        "8": PaperFigure(partial(gather.gather_by_fraction, study="faces", table="14"), draw.draw_by_fraction),
        "language_layers": PaperFigure(list_layers, draw.draw_language_layers),
        "face_controls": PaperFigure(gather.gather_face_controls, draw.draw_face_controls),
    },
)


def write_figures(results: "pd.DataFrame", folder: Path) -> list[Path]:
    """Draw every figure that the checked results allow, as PNG and PDF, with its numbers as CSV beside it.

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
            drawn.draw_without_rendering()  # place everything once, so that no format repeats the work
            drawn.set_layout_engine("none")
            contents |= {extension: render(drawn, extension) for extension in _METADATA}
        for extension, content in contents.items():
            write_atomically(stem.with_suffix(f".{extension}"), content)
            written.append(stem.with_suffix(f".{extension}"))
    return written


@contextmanager
def paper_style() -> Iterator[None]:
    """The look of all figures, for as long as the block lasts; the caller's settings stay as they are."""
    matplotlib = load_optional("matplotlib", "drawing figures")
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE, "backend": "agg"}):
        yield


def render(figure: "Figure", extension: str) -> bytes:
    """The figure as the bytes of a PNG or PDF file; the same figure always gives the same bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format=extension, dpi=200, metadata=_METADATA[extension])
    return stream.getvalue()
