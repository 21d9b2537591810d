"""A measured number with its keys, and the statistics that summarise runs."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.optional import load_optional
from ruler.core.types import FloatArray
from ruler.paper.published import NUMBER_KEYS, TEXT_KEYS
from ruler.stats import fit_random_intercept, signed_rank, signed_rank_of_means

if TYPE_CHECKING:
    import pandas as pd

KEYS = (*TEXT_KEYS, *NUMBER_KEYS)
NULLS = {"m2": 0.0, "m2_mean_baseline": 0.0, "m3": 0.0, "m4": 0.5, "mia": 0.5}


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


def identify(record: Mapping[Any, Any]) -> tuple[Any, ...]:
    """What tells a number of a table from all others: its table, column and keys, NaN as None.

    Example:
        >>> identify({"table": "1", "column": "m2_mean", **dict.fromkeys(KEYS, float("nan"))})[:3]
        ('1', 'm2_mean', None)
    """
    values = (record[name] for name in ("table", "column", *KEYS))
    return tuple(None if value != value else value for value in values)


def as_frame(numbers: Iterable[Number]) -> "pd.DataFrame":
    """Numbers as a tidy frame, one row each.

    Example:
        >>> as_frame([Number(column="m4_mean", value=0.5, n=10, n_paper=10)]).value.tolist()
        [0.5]
    """
    pandas = load_optional("pandas", "computing the tables")
    columns = [field.name for field in fields(Number)]
    records = [[getattr(number, name) for name in columns] for number in numbers]
    frame: pd.DataFrame = pandas.DataFrame(records, columns=columns)
    return frame


def summarise(
    rows: "pd.DataFrame",
    metric: str,
    statistics: Iterable[str],
    *,
    n_paper: int,
    name: str = "",
    **keys: Any,
) -> list[Number]:
    """Summary numbers of one metric over runs.

    Args:
        rows: Results, one row a run; runs where the metric is NaN do not count.
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
    values, groups = values[is_measured], rows["dataset"].to_numpy(dtype=str)[is_measured]
    found = []
    for statistic in statistics:
        value, note = _compute(statistic, values, groups, NULLS.get(metric, 0.0))
        column = f"{name or metric}_{statistic}"
        found.append(Number(column=column, value=value, n=len(values), n_paper=n_paper, note=note, **keys))
    return found


Answer = tuple[float, str]
Groups = npt.NDArray[Any]


def _compute(statistic: str, values: FloatArray, groups: Groups, null: float) -> Answer:
    if len(values) == 0:
        return math.nan, "no run measured this"
    return _STATISTICS[statistic](values, groups, null)


def _mean(values: FloatArray, groups: Groups, null: float) -> Answer:
    return float(np.mean(values)), ""


def _sd(values: FloatArray, groups: Groups, null: float) -> Answer:
    if len(values) < 2:
        return math.nan, "one run has no spread"
    return float(np.std(values, ddof=1)), ""


def _p_mixed(values: FloatArray, groups: Groups, null: float) -> Answer:
    # The paper gives no p-value where the fit is singular: a variance of zero makes the Wald test unsound.
    fit = fit_random_intercept(values, groups, null)
    return (math.nan, fit.note) if fit.is_singular else (fit.p_value, fit.note)


def _icc(values: FloatArray, groups: Groups, null: float) -> Answer:
    fit = fit_random_intercept(values, groups, null)
    return fit.icc, fit.note


def _p_wilcoxon(values: FloatArray, groups: Groups, null: float) -> Answer:
    test = signed_rank(values, null)
    return test.p_value, test.note


def _rank_biserial(values: FloatArray, groups: Groups, null: float) -> Answer:
    test = signed_rank(values, null)
    return test.rank_biserial, test.note


def _p_wilcoxon_datasets(values: FloatArray, groups: Groups, null: float) -> Answer:
    test = signed_rank_of_means(values, groups, null)
    return test.p_value, test.note


def _rank_biserial_datasets(values: FloatArray, groups: Groups, null: float) -> Answer:
    test = signed_rank_of_means(values, groups, null)
    return test.rank_biserial, test.note


_STATISTICS: dict[str, Callable[[FloatArray, Groups, float], Answer]] = {
    "mean": _mean,
    "sd": _sd,
    "p_mixed": _p_mixed,
    "icc": _icc,
    "p_wilcoxon": _p_wilcoxon,
    "rank_biserial": _rank_biserial,
    "p_wilcoxon_datasets": _p_wilcoxon_datasets,
    "rank_biserial_datasets": _rank_biserial_datasets,
}
