"""The numbers that each figure shows, one row per point."""

from typing import TYPE_CHECKING, Any

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.published import load_table
from ruler.paper.results import main_rows, rank_of, rows_of
from ruler.paper.tables.tabular import MAIN_FRACTION, compute_table_11, gather_five_methods

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ["panel", "forget_fraction", "dataset", "method", "seed"]
_DIAGNOSTIC_KEYS = ["panel", "forget_choice", "forget_fraction", "dataset", "method", "seed", "metric"]
_PUBLISHED_KEYS = ("study", "dataset", "architecture", "method", "forget_fraction")
_SET = ["forget_choice", "forget_fraction"]
_CONTROLS = ("m4_held_out", "m4_placebo", "m4_placebo_low", "m4_placebo_high")
_WITH_ORACLE = (*APPROXIMATE_METHODS, "oracle")


def gather_figure_1(results: "pd.DataFrame") -> "pd.DataFrame":
    """MIA of methods and oracles (panel a) and M2 of methods (panel b), at 5%."""
    rows = _at_main_fraction(rows_of(results, "primary", _WITH_ORACLE))
    return _stack([_points(rows, "mia", "a"), _points(rows[rows["method"] != "oracle"], "m2", "b")])


def gather_figure_3(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of five methods, with p of the paired test against Bad Teacher."""
    points = _points(gather_five_methods(results), "m4", "")
    p_values = {
        (number.forget_fraction, number.method): number.value
        for number in compute_table_11(results)
        if number.column == "m4_p_paired"
    }
    pairs = zip(points["forget_fraction"], points["method"], strict=True)
    return points.assign(p_against_bad_teacher=[p_values.get(pair, float("nan")) for pair in pairs])


def gather_figure_5(results: "pd.DataFrame") -> "pd.DataFrame":
    """M2 between independent oracles (panel a) and M2 of methods (panel b), at 5%."""
    pairs, methods = rows_of(results, "oracle-null", ("oracle",)), rows_of(results, "primary")
    left, right = _at_main_fraction(pairs), _at_main_fraction(methods)
    return _stack([_points(left, "m2", "a", "other_seed"), _points(right, "m2", "b", "other_seed")])


def gather_figure_6(results: "pd.DataFrame") -> "pd.DataFrame":
    """M3 of every method, dataset and fraction."""
    return _points(rows_of(results, "primary"), "m3", "")


def gather_figure_7(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of every method and of the oracle by dataset, at 5%."""
    return _points(_at_main_fraction(rows_of(results, "primary", _WITH_ORACLE)), "m4", "")


def gather_by_fraction(results: "pd.DataFrame", study: str, table: str) -> "pd.DataFrame":
    """M2 (panel a) and M4 (panel b) of a study, the original model in panel b only, with the table's means."""
    rows = main_rows(results, study)
    after, before = rows[~rows["method"].isin(["oracle", "original"])], rows[rows["method"] == "original"]
    parts = [_diagnostic_points(after, "m2", "a"), _diagnostic_points(after, "m4", "b")]
    return _add_published(_stack([*parts, _diagnostic_points(before, "m4", "b")]), table)


def gather_face_controls(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of forgotten identities in original and oracle, and the original's controls, by choice and fraction.

    ``identities`` says how many people and images a forget set holds.
    """
    rows = rows_of(results, "faces", ("original", "oracle"))
    original = rows[rows["method"] == "original"]
    parts = [_diagnostic_points(rows, "m4", ""), *(_diagnostic_points(original, name, "") for name in _CONTROLS)]
    points = _add_published(_stack(parts), "14")
    sizes = rows.groupby(_SET)[["n_groups", "n_forget"]].mean()
    names = {place: _count_people(*size) for place, size in zip(sizes.index, sizes.to_numpy(), strict=True)}
    return points.assign(identities=[names[place] for place in zip(*(points[key] for key in _SET), strict=True)])


def _count_people(n_people: float, n_images: float) -> str:
    people = "people not counted" if n_people != n_people else f"{n_people:.0f} people"
    return f"{'one person' if n_people == 1 else people}, {n_images:.0f} images"


def _at_main_fraction(rows: "pd.DataFrame") -> "pd.DataFrame":
    return rows[rows["forget_fraction"] == MAIN_FRACTION]


def _points(rows: "pd.DataFrame", metric: str, panel: str, *more: str) -> "pd.DataFrame":
    points = rows[rows[metric].notna()].assign(panel=panel, metric=metric)
    points = points.rename(columns={metric: "value"})[[*_KEYS, *more, "metric", "value"]]
    return _sort(points, "forget_fraction", "dataset", "method", "seed", *more).reset_index(drop=True)


def _diagnostic_points(rows: "pd.DataFrame", metric: str, panel: str) -> "pd.DataFrame":
    points = rows[rows[metric].notna()].assign(panel=panel, metric=metric, value=lambda part: part[metric])
    points = _sort(points, "forget_choice", "forget_fraction", "method", "seed")
    return points[["study", *_DIAGNOSTIC_KEYS, "architecture", "value"]]


def _sort(points: "pd.DataFrame", *keys: str) -> "pd.DataFrame":
    """Points in the paper's order of these keys."""

    def rank(column: "pd.Series[Any]") -> "pd.Series[Any]":
        return column.map(lambda value: rank_of(str(column.name), value))

    return points.sort_values(list(keys), key=rank, kind="stable")


def _stack(parts: "list[pd.DataFrame]") -> "pd.DataFrame":
    import pandas as pd

    filled = [part for part in parts if len(part)]
    return pd.concat(filled, ignore_index=True) if filled else parts[0]


def _add_published(points: "pd.DataFrame", table: str) -> "pd.DataFrame":
    """The published mean beside each point of the paper's conditions; NaN elsewhere."""
    known = {
        (record["column"], *(record[key] for key in _PUBLISHED_KEYS)): record["paper"]
        for record in load_table(table).to_dict("records")
    }
    places = zip(points["metric"] + "_mean", *(points[key] for key in _PUBLISHED_KEYS), strict=True)
    points = points.assign(paper=[known.get(place, float("nan")) for place in places])
    points["paper"] = points["paper"].where(points["forget_choice"] == "random")
    return points[[*_DIAGNOSTIC_KEYS, "value", "paper"]]
