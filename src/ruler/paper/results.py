"""Rows of finished cells: checked, and picked by study."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.names import rank_of

if TYPE_CHECKING:
    import pandas as pd

_SETTINGS = ("learning_rate", "batch_size", "forget_seed", "teacher_seed", "other_seed")
_ACCURACIES = ("forget_accuracy", "retain_accuracy", "test_accuracy")
_VARIED = ("architecture", "forget_choice")  # what only the diagnostic studies vary
CELL = ("study", "dataset", *_VARIED, "method", "forget_fraction", "seed", *_SETTINGS)
METRICS = ("m1", "m2", "m2_mean_baseline", "m3", "m4", "mia", *_ACCURACIES)
REQUIRED = (*(column for column in CELL if column not in _VARIED), "n_forget", *METRICS, "engine")
CONTRASTS = ("m2", "m4", "norm", "loss")
"""Of an audit; rows that were judged before norms and losses were read have M2 and M4 alone."""
# Stores of the tabular studies alone, and older ones, may lack these columns: what stands there then.
_TEXT_DEFAULTS = {
    "architecture": "tabular_mlp",
    "forget_choice": "random",
    "size": "full",
    **dict.fromkeys(("verdict", *(f"{name}_verdict" for name in CONTRASTS), "seen", "model", "precision", "note")),
}
_PLACEBO = tuple(f"m4_placebo{end}" for end in ("", "_sd", "_low", "_high", "_p"))
_AUDIT = (
    *(f"{name}_{value}" for name in CONTRASTS for value in ("p_value", "effect")),
    *("damage_similarity", "damage_skill", "m4_held_out", *_PLACEBO, "n_groups"),
)
DEFAULTS: dict[str, Any] = {**_TEXT_DEFAULTS, **dict.fromkeys(_AUDIT, math.nan)}
_TEXT = ("study", "dataset", "method", "engine", *_TEXT_DEFAULTS)
_DECIMALS = 12  # keys are joined by value: 0.1 must be 0.1 however it was computed


def check_results(results: "pd.DataFrame") -> "pd.DataFrame":
    """Results with every column that the tables read, numbers as floats, each cell once.

    Columns that only the diagnostic studies fill may be absent; they get their defaults.

    Raises:
        InputError: A column is missing, or a cell is there twice.

    Example:
        >>> import pandas
        >>> check_results(pandas.DataFrame(columns=REQUIRED)).shape[0]
        0
    """
    missing = [column for column in REQUIRED if column not in results.columns]
    if missing:
        raise InputError(
            f"results must have the columns {', '.join(REQUIRED)}; got none named {', '.join(missing)}. "
            "Read them from the store of a run."
        )
    checked = _fill_defaults(results.copy())
    numbers = [column for column in (*REQUIRED, *DEFAULTS) if column not in _TEXT]
    checked[numbers] = checked[numbers].astype(float)
    keys = [column for column in CELL if column not in _TEXT]
    checked[keys] = checked[keys].round(_DECIMALS)
    n_repeats = int(checked.duplicated(list(CELL)).sum())
    if n_repeats:
        raise InputError(
            f"results must hold each cell once; got {n_repeats} of {len(checked)} rows twice. "
            "Give the results of one engine and one store."
        )
    return checked


def _fill_defaults(results: "pd.DataFrame") -> "pd.DataFrame":
    for column, default in DEFAULTS.items():
        if column not in results:
            results[column] = default
        elif default is not None and default == default:
            results[column] = results[column].fillna(default)
    return results


def rows_of(results: "pd.DataFrame", study: str, methods: tuple[str, ...] = APPROXIMATE_METHODS) -> "pd.DataFrame":
    """The rows of one study and of these methods.

    Example:
        >>> import pandas
        >>> rows_of(check_results(pandas.DataFrame(columns=REQUIRED)), "minibatch").empty
        True
    """
    return results[(results["study"] == study) & results["method"].isin(methods)]


def split_by(rows: "pd.DataFrame", *keys: str) -> "Iterator[tuple[dict[str, Any], pd.DataFrame]]":
    """Each combination of the keys that occurs, in the paper's order, with its rows.

    Example:
        >>> import pandas
        >>> rows = pandas.DataFrame({"method": ["scrub", "gradient_ascent", "scrub"]})
        >>> [(keys["method"], len(part)) for keys, part in split_by(rows, "method")]
        [('gradient_ascent', 1), ('scrub', 2)]
    """
    groups = [(dict(zip(keys, values, strict=True)), part) for values, part in rows.groupby(list(keys))]
    yield from sorted(groups, key=lambda group: [rank_of(key, value) for key, value in group[0].items()])


def average_seeds(rows: "pd.DataFrame", metric: str, *keys: str) -> "pd.Series[float]":
    """Mean of a metric over the runs of each combination of keys; runs without it do not count.

    Example:
        >>> import pandas
        >>> rows = pandas.DataFrame({"dataset": ["a", "a", "b"], "m4": [0.4, 0.6, None]})
        >>> average_seeds(rows, "m4", "dataset").to_dict()
        {'a': 0.5}
    """
    means: pd.Series[float] = rows[[*keys, metric]].dropna(subset=[metric]).groupby(list(keys))[metric].mean()
    return means
