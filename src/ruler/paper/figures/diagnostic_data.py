"""The numbers behind the figures of clinical text and faces, one row a point."""

from typing import TYPE_CHECKING

from ruler.core.optional import load_optional
from ruler.experiment.settings import ALL_METHODS
from ruler.paper.diagnostics.conditions import main_rows
from ruler.paper.figures.data import rank_column
from ruler.paper.names import count_people
from ruler.paper.published import load_table
from ruler.paper.results import rows_of

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ["panel", "forget_choice", "forget_fraction", "dataset", "method", "seed", "metric"]
_SET = ["forget_choice", "forget_fraction"]
_CONTROLS = ("m4_held_out", "m4_placebo", "m4_placebo_low", "m4_placebo_high")


def gather_figure_4(results: "pd.DataFrame") -> "pd.DataFrame":
    """M2 (panel a) and M4 (panel b) on clinical text, the original model in panel b only, with published means."""
    return _gather_panels(results, "clinical", "text")


def gather_figure_8(results: "pd.DataFrame") -> "pd.DataFrame":
    """M2 (panel a) and M4 (panel b) on faces, the original model in panel b only, with published means."""
    return _gather_panels(results, "faces", "14")


def gather_face_controls(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of forgotten identities in original and oracle, and the original's controls, by choice and fraction.

    ``identities`` says how many people and images a forget set holds.
    """
    rows = rows_of(results, "faces", ("original", "oracle"))
    original = rows[rows["method"] == "original"]
    points = _stack([_points(rows, "m4", ""), *(_points(original, name, "") for name in _CONTROLS)], "14")
    sizes = rows.groupby(_SET)[["n_groups", "n_forget"]].mean()
    names = {place: count_people(*size) for place, size in zip(sizes.index, sizes.to_numpy(), strict=True)}
    return points.assign(identities=[names[place] for place in zip(*(points[key] for key in _SET), strict=True)])


def _gather_panels(results: "pd.DataFrame", study: str, table: str) -> "pd.DataFrame":
    rows = main_rows(results, study)
    after = rows[rows["method"].isin(ALL_METHODS)]
    before = rows[rows["method"] == "original"]
    return _stack([_points(after, "m2", "a"), _points(after, "m4", "b"), _points(before, "m4", "b")], table)


def _points(rows: "pd.DataFrame", metric: str, panel: str) -> "pd.DataFrame":
    points = rows[rows[metric].notna()].assign(panel=panel, metric=metric, value=lambda part: part[metric])
    ordered = points.sort_values(["forget_choice", "forget_fraction", "method", "seed"], key=rank_column, kind="stable")
    return ordered[["study", *_KEYS, "architecture", "value"]]


def _stack(parts: "list[pd.DataFrame]", table: str) -> "pd.DataFrame":
    pandas = load_optional("pandas", "gathering a figure's numbers")
    filled = [part for part in parts if len(part)]
    points = pandas.concat(filled, ignore_index=True) if filled else parts[0]
    return _add_published(points, table)


def _add_published(points: "pd.DataFrame", table: str) -> "pd.DataFrame":
    """The published mean beside each point of the paper's conditions; NaN elsewhere."""
    numbers = load_table(table)
    keys = ("study", "dataset", "architecture", "method", "forget_fraction")
    known = {
        (record["column"], *(record[key] for key in keys)): record["paper"] for record in numbers.to_dict("records")
    }
    is_paper = points["forget_choice"] == "random"
    places = zip(points["metric"] + "_mean", *(points[key] for key in keys), strict=True)
    means = [known.get(place, float("nan")) for place in places]
    columns = [*_KEYS, "value"]
    return points.assign(paper=means)[[*columns, "paper"]].assign(paper=lambda part: part["paper"].where(is_paper))
