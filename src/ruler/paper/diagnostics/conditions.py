"""The conditions of a diagnostic study: what its seeds give, and what the audit says of them."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from ruler.paper.names import METHODS, rank_of
from ruler.paper.results import CONTRASTS, rows_of

if TYPE_CHECKING:
    import pandas as pd

N_SEEDS = 5
LEAKING_SET = "mtsamples_rows"
KEYS = ("dataset", "architecture", "forget_fraction", "method")
_MEANS = (
    *("m2", "m4", "m4_held_out", *(f"{name}_effect" for name in CONTRASTS)),
    *("damage_similarity", "damage_skill", "mia", "n_forget"),
)
_ACCURACIES = ("forget_accuracy", "retain_accuracy", "test_accuracy")
_P_VALUES = tuple(f"{name}_p_value" for name in CONTRASTS)
_VERDICTS = ("verdict", *(f"{name}_verdict" for name in CONTRASTS))


def main_rows(results: "pd.DataFrame", study: str) -> "pd.DataFrame":
    """Rows of a study as the paper has it: records or groups chosen at random, documents by distinct text.

    Example:
        >>> import pandas
        >>> from ruler.paper.results import REQUIRED, check_results
        >>> main_rows(check_results(pandas.DataFrame(columns=REQUIRED)), "faces").empty
        True
    """
    rows = rows_of(results, study, METHODS)
    return rows[(rows["forget_choice"] == "random") & (rows["dataset"] != LEAKING_SET)]


def is_of_full_size(runs: "pd.DataFrame") -> bool:
    """Whether these runs are the study itself and not a smoke run of it, on few records.

    Example:
        >>> import pandas
        >>> is_of_full_size(pandas.DataFrame({"size": ["full", "smoke"]}))
        False
    """
    return bool((runs["size"] == "full").all())


def gather_conditions(results: "pd.DataFrame", study: str) -> "pd.DataFrame":
    """What do the seeds of each condition give?

    Args:
        results: Checked results, one row a finished cell.
        study: One of the diagnostic studies.

    Returns:
        One row a dataset, architecture, forget fraction and method, the original first: ``n`` runs, means of the
        scores under their names, ``m2_sd`` and ``m4_sd``, p-values as ``..._median``, ``..._min`` and ``..._max``,
        verdicts counted over seeds, as in ``residual 4, inconclusive 1``, and ``is_broken``: the retain accuracy is
        less than half of the original's.
    """
    rows = main_rows(results, study)
    groups = rows.groupby(list(KEYS))
    found = groups[[*_MEANS, *_ACCURACIES]].mean().assign(n=groups.size())
    for name in ("m2", "m4"):
        found[f"{name}_sd"] = groups[name].std(ddof=1)
    for name in _P_VALUES:
        summary = groups[name].agg(["median", "min", "max"])
        found = found.join(summary.add_prefix(f"{name}_"))
    for name in _VERDICTS:
        found[name] = groups[name].agg(count_values) if len(rows) else []
    found["is_broken"] = [_is_broken(found["retain_accuracy"], place) for place in found.index]
    ordered = sorted(found.index, key=_rank_condition)
    frame: pd.DataFrame = found.loc[ordered].reset_index() if ordered else found.reset_index()
    return frame


def _is_broken(accuracies: "pd.Series[Any]", place: tuple[Any, ...]) -> bool:
    original = accuracies.get((*place[:-1], "original"))
    return original is not None and bool(accuracies[place] < original / 2)


def count_values(values: "pd.Series[Any]") -> str:
    """How often each value occurs, most frequent first; empty where none does.

    Example:
        >>> import pandas
        >>> count_values(pandas.Series(["residual", "inconclusive", "residual", None]))
        'residual 2, inconclusive 1'
    """
    counts = Counter(value for value in values if isinstance(value, str) and value)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{value} {count}" for value, count in ordered)


def _rank_condition(place: tuple[Any, ...]) -> list[Any]:
    *keys, method = place
    ranks: list[Any] = [rank_of(name, value) for name, value in zip(KEYS, keys, strict=False)]
    return [*ranks, method != "original", rank_of("method", method)]
