"""What the paper calls things, and in which order it lists them."""

from typing import Any

from ruler.data import DATASETS as _KNOWN
from ruler.data import list_datasets
from ruler.experiment.settings import ALL_METHODS
from ruler.models import MODELS
from ruler.unlearning import METHODS as UNLEARNING_METHODS

DATASETS = list_datasets("primary")
METHODS = (*ALL_METHODS, "oracle", "original")
TABULAR_STUDIES = ("primary", "bad-teacher", "oracle-null", "minibatch", "learning-rate", "forget-seeds")
DIAGNOSTIC_STUDIES = ("large-tabular", "images", "faces", "clinical")
STUDIES = (*TABULAR_STUDIES, *DIAGNOSTIC_STUDIES)
ARCHITECTURES = {**{key: entry.title for key, entry in MODELS.items()}, "bert_mlm": "BERT, masked words"}
FORGET_CHOICES = {"random": "random", "most_frequent": "most frequent", "single": "one alone", "pair": "two alone"}

_TITLES = {
    "oracle": "Oracle",
    "original": "Original",
    **ARCHITECTURES,
    **FORGET_CHOICES,
}
_ORDERS: dict[str, tuple[str, ...]] = {
    "dataset": tuple(key for study in ("primary", *DIAGNOSTIC_STUDIES) for key in list_datasets(study)),
    "architecture": tuple(ARCHITECTURES),
    "forget_choice": tuple(FORGET_CHOICES),
    "method": METHODS,
    "other_method": METHODS,
    "study": STUDIES,
}


def title_of(key: str) -> str:
    """Name in the paper of a dataset, method or model; what has none keeps its own.

    Example:
        >>> title_of("neggrad_plus"), title_of("diabetes130"), title_of("my_set")
        ('NegGrad+', 'Diabetes 130-US', 'my_set')
    """
    if key in UNLEARNING_METHODS:
        return UNLEARNING_METHODS[key].title
    return _KNOWN[key].title if key in _KNOWN else _TITLES.get(key, key)


def short_title_of(key: str) -> str:
    """The same, abbreviated for an axis.

    Example:
        >>> short_title_of("neggrad_plus"), short_title_of("oracle")
        ('NG+', 'Oracle')
    """
    return UNLEARNING_METHODS[key].short if key in UNLEARNING_METHODS else title_of(key)


def name_draw(forget_choice: str, forget_fraction: float) -> str:
    """A forget set by its share of the records; one whose share was not chosen by how its groups were.

    Example:
        >>> name_draw("random", 0.01), name_draw("single", 0.1)
        ('1%', 'one alone')
    """
    return f"{100 * forget_fraction:g}%" if forget_choice == "random" else title_of(forget_choice)


def count_people(n_people: float, n_images: float) -> str:
    """How many people and images a forget set of faces holds.

    Example:
        >>> count_people(1, 11), count_people(3, 58), count_people(float("nan"), 58)
        ('one person, 11 images', '3 people, 58 images', 'people not counted, 58 images')
    """
    people = (
        "one person" if n_people == 1 else "people not counted" if n_people != n_people else f"{n_people:.0f} people"
    )
    return f"{people}, {n_images:.0f} images"


def rank_of(kind: str, value: Any) -> tuple[int, Any]:
    """Sort key that puts values of a key column in the paper's order and strangers after them.

    Example:
        >>> sorted(["scrub", "mine", "gradient_ascent"], key=lambda name: rank_of("method", name))
        ['gradient_ascent', 'scrub', 'mine']
    """
    order = _ORDERS.get(kind, ())
    return (order.index(value), "") if value in order else (len(order), value)
