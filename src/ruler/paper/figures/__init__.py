"""Results -> the paper's figures: numbers first, ink second."""

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.files import write_atomically
from ruler.core.optional import load_optional
from ruler.core.registry import Registry
from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.figures import draw
from ruler.paper.published import load_table
from ruler.paper.results import main_rows, rank_of, rows_of
from ruler.paper.tables.diagnostics import list_layers
from ruler.paper.tables.tabular import MAIN_FRACTION, WITH_ORACLE, compute_table_11, gather_five_methods

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_METADATA: dict[str, Any] = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Producer": None}}
_KEYS = ("forget_fraction", "dataset", "method", "seed")
_DIAGNOSTIC_KEYS = ("forget_choice", *_KEYS, "study", "architecture")
_PUBLISHED_KEYS = ("study", "dataset", "architecture", "method", "forget_fraction")
_SET = ["forget_choice", "forget_fraction"]
_CONTROLS = ("m4_held_out", "m4_placebo", "m4_placebo_low", "m4_placebo_high")


def gather_figure_1(results: "pd.DataFrame") -> "pd.DataFrame":
    """MIA of methods and oracles (panel a) and M2 of methods (panel b), at 5%."""
    return _stack(_at_main_fraction(results, "mia", "a", WITH_ORACLE), _at_main_fraction(results, "m2", "b"))


def gather_figure_3(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of five methods, with p of the paired test against Bad Teacher."""
    points = _points(gather_five_methods(results), "m4", "")
    tests = (number for number in compute_table_11(results) if number.column == "m4_p_paired")
    p_values = {(number.forget_fraction, number.method): number.value for number in tests}
    pairs = zip(points["forget_fraction"], points["method"], strict=True)
    return points.assign(p_against_bad_teacher=[p_values.get(pair, math.nan) for pair in pairs])


def gather_figure_5(results: "pd.DataFrame") -> "pd.DataFrame":
    """M2 between independent oracles (panel a) and M2 of methods (panel b), at 5%."""
    keys = (*_KEYS, "other_seed")
    pairs = _at_main_fraction(results, "m2", "a", ("oracle",), "oracle-null", keys)
    return _stack(pairs, _at_main_fraction(results, "m2", "b", keys=keys))


def gather_by_fraction(results: "pd.DataFrame", study: str, table: str) -> "pd.DataFrame":
    """M2 (panel a) and M4 (panel b) of a study, the original model in panel b only, with the table's means."""
    rows = main_rows(results, study)
    after, before = rows[~rows["method"].isin(["oracle", "original"])], rows[rows["method"] == "original"]
    parts = ((after, "m2", "a"), (after, "m4", "b"), (before, "m4", "b"))
    return _add_published(_stack(*(_points(*part, _DIAGNOSTIC_KEYS) for part in parts)), table)


def gather_face_controls(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of forgotten identities in original and oracle, and the original's controls, by choice and fraction.

    ``identities`` says how many people and images a forget set holds.
    """
    rows = rows_of(results, "faces", ("original", "oracle"))
    original = rows[rows["method"] == "original"]
    parts = [_points(original, name, "", _DIAGNOSTIC_KEYS) for name in _CONTROLS]
    points = _add_published(_stack(_points(rows, "m4", "", _DIAGNOSTIC_KEYS), *parts), "14")
    sizes = rows.groupby(_SET)[["n_groups", "n_forget"]].mean()
    names = {}
    for place, (n_people, n_images) in zip(sizes.index, sizes.to_numpy(), strict=True):
        people = "people not counted" if math.isnan(n_people) else f"{n_people:.0f} people"
        names[place] = f"{'one person' if n_people == 1 else people}, {n_images:.0f} images"
    return points.assign(identities=[names[place] for place in zip(*(points[key] for key in _SET), strict=True)])


def _at_main_fraction(
    results: "pd.DataFrame",
    metric: str,
    panel: str,
    methods: tuple[str, ...] = APPROXIMATE_METHODS,
    study: str = "primary",
    keys: Sequence[str] = _KEYS,
) -> "pd.DataFrame":
    rows = rows_of(results, study, methods)
    return _points(rows[rows["forget_fraction"] == MAIN_FRACTION], metric, panel, keys)


def _points(rows: "pd.DataFrame", metric: str, panel: str, keys: Sequence[str] = _KEYS) -> "pd.DataFrame":
    """One point per run that has the metric, in the paper's order of these keys."""

    def rank(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return column.map(lambda value: rank_of(str(column.name), value))

    points = rows[rows[metric].notna()].assign(panel=panel, metric=metric, value=lambda part: part[metric])
    points = points.sort_values(list(keys), key=rank, kind="stable", ignore_index=True)
    return points[["panel", *keys, "metric", "value"]]


def _stack(*parts: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else parts[0]


def _add_published(points: "pd.DataFrame", table: str) -> "pd.DataFrame":
    """The published mean beside each point of the paper's conditions; NaN elsewhere."""
    published = load_table(table)
    places = zip(published["column"], *(published[key] for key in _PUBLISHED_KEYS), strict=True)
    known = dict(zip(places, published["paper"], strict=True))
    places = zip(points["metric"] + "_mean", *(points[key] for key in _PUBLISHED_KEYS), strict=True)
    points = points.assign(paper=[known.get(place, math.nan) for place in places])
    points["paper"] = points["paper"].where(points["forget_choice"] == "random")
    return points.drop(columns=["study", "architecture"])


@dataclass(frozen=True)
class PaperFigure:
    """A figure: results -> the points it shows, none where its study was not run; and points -> ink."""

    gather: "Callable[[pd.DataFrame], pd.DataFrame]"
    draw: "Callable[[pd.DataFrame], Figure]"


FIGURES: Registry[PaperFigure] = Registry(
    "figure",
    {
        "1": PaperFigure(gather_figure_1, draw.draw_figure_1),
        "3": PaperFigure(gather_figure_3, draw.draw_figure_3),
        "4": PaperFigure(partial(gather_by_fraction, study="clinical", table="text"), draw.draw_by_fraction),
        "5": PaperFigure(gather_figure_5, draw.draw_figure_5),
        "6": PaperFigure(lambda results: _points(rows_of(results, "primary"), "m3", ""), draw.draw_figure_6),
        "7": PaperFigure(partial(_at_main_fraction, metric="m4", panel="", methods=WITH_ORACLE), draw.draw_figure_7),
        "8": PaperFigure(partial(gather_by_fraction, study="faces", table="14"), draw.draw_by_fraction),
        "language_layers": PaperFigure(list_layers, draw.draw_language_layers),
        "face_controls": PaperFigure(gather_face_controls, draw.draw_face_controls),
    },
)


def write_figures(results: "pd.DataFrame", folder: Path) -> None:
    """Draw every figure that the checked results allow, as PNG and PDF, with its numbers as CSV beside it.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
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


@contextmanager
def paper_style() -> Iterator[None]:
    """The look of all figures, for as long as the block lasts; the caller's settings stay as they are."""
    matplotlib = load_optional("matplotlib", "drawing figures")
    style = matplotlib.rc_params_from_file(Path(__file__).with_name("paper.mplstyle"), use_default_template=False)
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **style, "backend": "agg"}):
        yield


def render(figure: "Figure", extension: str) -> bytes:
    """The figure as the bytes of a PNG or PDF file; the same figure always gives the same bytes."""
    stream = io.BytesIO()
    figure.savefig(stream, format=extension, dpi=200, metadata=_METADATA[extension])
    return stream.getvalue()
