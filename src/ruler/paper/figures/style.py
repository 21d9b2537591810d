"""One look for all figures: sizes, colours that colour-blind readers can tell apart, boxes, files."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.unlearning import METHODS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_REFERENCES = {"oracle": "#999999", "original": "#CC79A7"}  # Okabe and Ito's palette, as the methods
_OTHER = "#444444"
_ENOUGH_FOR_A_BOX = 3
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
_NULL_LINE: dict[str, Any] = {"color": "#222222", "linewidth": 0.8, "linestyle": (0, (4, 3)), "zorder": 1}


def colour_of(method: str) -> str:
    """The colour of a method or of a reference model.

    Example:
        >>> colour_of("scrub"), colour_of("oracle")
        ('#0072B2', '#999999')
    """
    return METHODS[method].colour if method in METHODS else _REFERENCES.get(method, _OTHER)


@contextmanager
def paper_style() -> Iterator[None]:
    """The look, for as long as the block lasts; the caller's settings stay as they are."""
    matplotlib = load_optional("matplotlib", "drawing figures")
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE, "backend": "agg"}):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, sized in inches, that no window or pyplot state knows of."""
    module = load_optional("matplotlib.figure", "drawing figures")
    figure: Figure = module.Figure(figsize=(width, height), layout="constrained")
    return figure


def settle(figure: "Figure") -> None:
    """Place everything once, so that every format of a figure shows the same and none repeats the work."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def render(figure: "Figure", extension: str) -> bytes:
    """The figure as the bytes of a PNG or PDF file; the same figure always gives the same bytes."""
    metadata: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}[extension]
    stream = io.BytesIO()
    figure.savefig(stream, format=extension, dpi=200, metadata=metadata)
    return stream.getvalue()


def draw_boxes(axes: "Axes", samples: Mapping[str, npt.ArrayLike], *, width: float = 0.62) -> None:
    """A box a sample (median, quartiles, whiskers to 1.5 IQR) over its single values.

    Args:
        axes: Where to.
        samples: Values by method, from left to right at 0, 1, ...; the method gives the colour.
        width: Of a box.
    """
    jitter = np.random.RandomState(0)
    for place, (method, values) in enumerate(samples.items()):
        colour = colour_of(method)
        values = np.asarray(values, dtype=np.float64)
        offsets = jitter.uniform(-0.38 * width, 0.38 * width, size=len(values))
        if len(values) < _ENOUGH_FOR_A_BOX:
            axes.scatter(np.full(len(values), place), values, s=16, color=colour, zorder=3)
            continue
        axes.scatter(place + offsets, values, s=2.5, color=colour, alpha=0.45, linewidths=0, zorder=2)
        axes.boxplot(
            [values],
            positions=[place],
            widths=width,
            showfliers=False,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": colour + "40", "edgecolor": colour, "linewidth": 0.9},
            medianprops={"color": "#111111", "linewidth": 1.1},
            whiskerprops={"color": colour, "linewidth": 0.9},
            capprops={"color": colour, "linewidth": 0.9},
            zorder=3,
        )


def draw_null(axes: "Axes", value: float) -> None:
    """The dashed line of a null value."""
    axes.axhline(value, **_NULL_LINE)


def name_ticks(axes: "Axes", positions: Sequence[float], names: Sequence[str]) -> None:
    """Names under the x axis, without tick marks."""
    axes.set_xticks(list(positions), list(names))
    axes.tick_params(axis="x", length=0)
