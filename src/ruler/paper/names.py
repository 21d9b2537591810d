"""What the paper calls things, and in which order it lists them."""

from typing import Any

from ruler.data.sets import TABULAR_SETS

DATASETS = tuple(TABULAR_SETS)
APPROXIMATE_METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub")
METHODS = (*APPROXIMATE_METHODS, "bad_teacher", "oracle", "original")
STUDIES = ("primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds")

_TITLES = {
    "gradient_ascent": "Gradient Ascent",
    "neggrad_plus": "NegGrad+",
    "fine_tuning": "Fine-Tuning",
    "scrub": "SCRUB",
    "bad_teacher": "Bad Teacher",
    "oracle": "Oracle",
    "original": "Original",
    **{key: entry.title for key, entry in TABULAR_SETS.items()},
}
_SHORT = {**_TITLES, "gradient_ascent": "GA", "neggrad_plus": "NG+", "fine_tuning": "FT", "bad_teacher": "BT"}
_ORDERS = {"dataset": DATASETS, "method": METHODS, "other_method": METHODS, "study": STUDIES}


def title_of(key: str) -> str:
    """Name in the paper of a dataset or method; what has none keeps its own.

    Example:
        >>> title_of("neggrad_plus"), title_of("diabetes130"), title_of("my_set")
        ('NegGrad+', 'Diabetes 130-US', 'my_set')
    """
    return _TITLES.get(key, key)


def short_title_of(key: str) -> str:
    """The same, abbreviated for an axis.

    Example:
        >>> short_title_of("neggrad_plus"), short_title_of("oracle")
        ('NG+', 'Oracle')
    """
    return _SHORT.get(key, key)


def rank_of(kind: str, value: Any) -> tuple[int, Any]:
    """Sort key that puts values of a key column in the paper's order and strangers after them.

    Example:
        >>> sorted(["scrub", "mine", "gradient_ascent"], key=lambda name: rank_of("method", name))
        ['gradient_ascent', 'scrub', 'mine']
    """
    order = _ORDERS.get(kind, ())
    return (order.index(value), "") if value in order else (len(order), value)
