"""A measured number with its keys, and the statistics that summarise runs."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.types import FloatArray
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
    """One number of a table, under the keys and the column name of the published one.

    Args:
        column: Metric and statistic, e.g. ``m2_mean``.
        value: NaN where it could not be computed.
        n: Runs behind it.
        n_paper: Runs behind the paper's number; with fewer, the two are not the same quantity.
        note: Why the value is NaN, or how to read it.
        out_of: Total of a count; NaN otherwise.
        is_comparable: Whether its runs are of the paper's size; a smoke run's number is shown, never judged.
        study, dataset, ...: Keys to join with, empty where a table has no such key.
    """

    column: str
    value: float
    n: int
    n_paper: int
    note: str = ""
    out_of: float = math.nan
    is_comparable: bool = True
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
    """What tells a number from all others: its table, column and keys, NaN as None.

    Example:
        >>> identify({"table": "1", "column": "m2_mean", **dict.fromkeys(KEYS, float("nan"))})[:3]
        ('1', 'm2_mean', None)
    """
    return tuple(None if record[key] != record[key] else record[key] for key in keys)


def as_frame(numbers: Iterable[Number]) -> "pd.DataFrame":
    """Numbers as a tidy frame, one row each.

    Example:
        >>> as_frame([Number(column="m4_mean", value=0.5, n=10, n_paper=10)]).value.tolist()
        [0.5]
    """
    import pandas as pd

    columns = [field.name for field in fields(Number)]
    return pd.DataFrame([[getattr(number, name) for name in columns] for number in numbers], columns=columns)


def summarise(
    rows: "pd.DataFrame", metric: str, statistics: Iterable[str], *, n_paper: int, name: str = "", **keys: Any
) -> list[Number]:
    """Summary numbers of one metric over runs.

    Args:
        rows: Results, one row per run; runs where the metric is NaN do not count.
        metric: Column to summarise.
        statistics: Of ``mean``, ``sd``, ``p_mixed``, ``icc``, ``p_wilcoxon``, ``rank_biserial``,
            ``p_wilcoxon_datasets``, ``rank_biserial_datasets``.
        n_paper: Runs behind the paper's numbers.
        name: What the columns start with; the metric's name when not given.
        keys: Keys of the numbers.

    Example:
        >>> import pandas
        >>> rows = pandas.DataFrame({"dataset": ["a", "b"], "m4": [0.5, 0.7]})
        >>> [(found.column, round(found.value, 3)) for found in summarise(rows, "m4", ["mean", "sd"], n_paper=2)]
        [('m4_mean', 0.6), ('m4_sd', 0.141)]
    """
    values = rows[metric].to_numpy(dtype=np.float64, na_value=np.nan)  # columns, for a frame of them takes far longer
    is_measured = ~np.isnan(values)
    values, datasets = values[is_measured], rows["dataset"].to_numpy(dtype=str)[is_measured]
    found = []
    for statistic in statistics:
        value, note = _compute(statistic, values, datasets, _NULLS.get(metric, 0.0))
        column = f"{name or metric}_{statistic}"
        found.append(Number(column=column, value=value, n=len(values), n_paper=n_paper, note=note, **keys))
    return found


def summarise_each(
    rows: "pd.DataFrame", by: Iterable[str], metrics: Iterable[str], statistics: Iterable[str], **keys: Any
) -> list[Number]:
    """``summarise`` for each combination of the keys ``by`` and each metric."""
    return [
        number
        for place, runs in split_by(rows, *by)
        for metric in metrics
        for number in summarise(runs, metric, statistics, **keys, **place)
    ]


def _compute(statistic: str, values: FloatArray, datasets: npt.NDArray[Any], null: float) -> tuple[float, str]:
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
