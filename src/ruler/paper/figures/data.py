"""The numbers that each figure shows, one row a point."""

from typing import TYPE_CHECKING, Any

from ruler.core.optional import load_optional
from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.names import rank_of
from ruler.paper.results import rows_of
from ruler.paper.tables.bad_teacher import compute_table_11, gather_five_methods

if TYPE_CHECKING:
    import pandas as pd

MAIN_FRACTION = 0.05
_KEYS = ["panel", "forget_fraction", "dataset", "method", "seed"]


def gather_figure_1(results: "pd.DataFrame") -> "pd.DataFrame":
    """MIA of methods and oracles (panel a) and M2 of methods (panel b), at 5%."""
    rows = rows_of(results, "primary", (*APPROXIMATE_METHODS, "oracle"))
    rows = rows[rows["forget_fraction"] == MAIN_FRACTION]
    panels = [_points(rows, "mia", "a"), _points(rows[rows["method"] != "oracle"], "m2", "b")]
    return _stack(panels)


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
    left, right = (rows[rows["forget_fraction"] == MAIN_FRACTION] for rows in (pairs, methods))
    return _stack([_points(left, "m2", "a", "other_seed"), _points(right, "m2", "b", "other_seed")])


def gather_figure_6(results: "pd.DataFrame") -> "pd.DataFrame":
    """M3 of every method, dataset and fraction."""
    return _points(rows_of(results, "primary"), "m3", "")


def gather_figure_7(results: "pd.DataFrame") -> "pd.DataFrame":
    """M4 of every method and of the oracle by dataset, at 5%."""
    rows = rows_of(results, "primary", (*APPROXIMATE_METHODS, "oracle"))
    return _points(rows[rows["forget_fraction"] == MAIN_FRACTION], "m4", "")


def _points(rows: "pd.DataFrame", metric: str, panel: str, *more: str) -> "pd.DataFrame":
    points = rows[rows[metric].notna()].assign(panel=panel, metric=metric)
    points = points.rename(columns={metric: "value"})[[*_KEYS, *more, "metric", "value"]]
    ordered = points.sort_values(
        ["forget_fraction", "dataset", "method", "seed", *more], key=rank_column, kind="stable"
    )
    return ordered.reset_index(drop=True)


def rank_column(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Sort keys that put a key column's values in the paper's order."""
    return column.map(lambda value: rank_of(str(column.name), value))


def _stack(panels: "list[pd.DataFrame]") -> "pd.DataFrame":
    pandas = load_optional("pandas", "gathering a figure's numbers")
    filled = [panel for panel in panels if len(panel)]
    stacked: pd.DataFrame = pandas.concat(filled, ignore_index=True) if filled else panels[0]
    return stacked
