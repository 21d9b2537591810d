"""A measured number with its keys, and the statistics that summarise runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.paper.published import NUMBER_KEYS, TEXT_KEYS
from ruler.paper.results import split_by
from ruler.stats import fit_random_intercept, signed_rank, signed_rank_of_means

if TYPE_CHECKING:
    import pandas as pd

KEYS = (*TEXT_KEYS, *NUMBER_KEYS)
NOT_MEASURED, NO_SPREAD = "no run measured this", "one run has no spread"
_NULLS = {"m4": 0.5, "mia": 0.5}  # of all other metrics 0


@dataclass(frozen=True, kw_only=True)
class Number:
    """One number of a table, under the column and the keys of the published one; keys that a table lacks stay empty."""

    column: str  # metric and statistic, e.g. m2_mean
    value: float  # NaN where it could not be computed
    n: int  # runs behind it
    n_paper: int  # runs behind the paper's number; with fewer, the two are not the same quantity
    note: str = ""  # why the value is NaN, or how to read it
    out_of: float = math.nan  # total of a count
    is_comparable: bool = True  # a smoke run's number is shown, never judged
    study: str = ""
    dataset: str = ""
    architecture: str = ""
    forget_choice: str = ""
    method: str = ""
    other_method: str = ""
    baseline: str = ""
    source: str = ""
    forget_fraction: float = math.nan
    learning_rate: float = math.nan


def identify(record: Mapping[Any, Any], keys: Iterable[str] = ("table", "column", *KEYS)) -> tuple[Any, ...]:
    """What tells a number from all others: its table, column and keys, NaN as None."""
    return tuple(None if record[key] != record[key] else record[key] for key in keys)


def as_frame(numbers: Iterable[Number]) -> "pd.DataFrame":
    """Numbers as a tidy frame, one row each."""
    import pandas as pd

    return pd.DataFrame([vars(number) for number in numbers], columns=list(Number.__dataclass_fields__))


def state(values: Mapping[str, float], note: str = "", **keys: Any) -> list[Number]:
    """Numbers by their columns, the note beside those that are NaN."""
    return [
        Number(column=column, value=value, note=note if math.isnan(value) else "", **keys)
        for column, value in values.items()
    ]


def summarise(
    rows: "pd.DataFrame",
    metrics: Iterable[str],
    statistics: Iterable[str],
    by: Iterable[str] = (),
    *,
    name: str = "",
    **keys: Any,
) -> list[Number]:
    """Summary numbers of metrics over runs, for each combination of the keys ``by``.

    Args:
        rows: Results, one row per run; runs where the metric is NaN do not count.
        metrics: Columns to summarise.
        statistics: Names that ``_compute`` knows.
        name: What the column starts with; the metric's name when not given.
        keys: ``n_paper`` and keys of the numbers.

    Example:
        >>> import pandas
        >>> rows = pandas.DataFrame({"dataset": ["a", "b"], "m4": [0.5, 0.7]})
        >>> [(found.column, round(found.value, 3)) for found in summarise(rows, ["m4"], ["mean", "sd"], n_paper=2)]
        [('m4_mean', 0.6), ('m4_sd', 0.141)]
    """
    found = []
    for place, runs in split_by(rows, *by):
        for metric in metrics:
            values = runs[metric].to_numpy(dtype=np.float64, na_value=np.nan)  # far faster than a frame of columns
            is_measured = ~np.isnan(values)
            values, datasets = values[is_measured], runs["dataset"].to_numpy(dtype=str)[is_measured]
            for statistic in statistics:
                value, note = _compute(statistic, values, datasets, _NULLS.get(metric, 0.0))
                column = f"{name or metric}_{statistic}"
                found.append(Number(column=column, value=value, n=len(values), note=note, **keys, **place))
    return found


def _compute(statistic: str, values: Any, datasets: Any, null: float) -> tuple[float, str]:
    """A statistic, and the reason where it is NaN."""
    if len(values) == 0:
        return math.nan, NOT_MEASURED
    if statistic == "mean":
        return float(np.mean(values)), ""
    if statistic == "sd":
        return (float(np.std(values, ddof=1)), "") if len(values) > 1 else (math.nan, NO_SPREAD)
    if statistic in ("p_mixed", "icc"):
        fit = fit_random_intercept(values, datasets, null)
        if statistic == "icc":
            return fit.icc, fit.note
        # The paper gives no p-value where the fit is singular: a variance of zero makes the Wald test unsound.
        return (math.nan if fit.is_singular else fit.p_value), fit.note
    is_by_dataset = statistic.endswith("_datasets")
    test = signed_rank_of_means(values, datasets, null) if is_by_dataset else signed_rank(values, null)
    return (test.p_value if statistic.startswith("p_") else test.rank_biserial), test.note
