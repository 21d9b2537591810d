"""All methods in a table: what each minimises, its defaults, its source and what is worth trying."""

from dataclasses import fields

from ruler.core.text import markdown_table
from ruler.unlearning import METHODS
from ruler.unlearning.method import Method, UnlearningSettings

KINDS = {
    "any": "For classifiers and language models",
    "classifier": "For classifiers",
    "language": "For language models",
    "preferences": "For language models, with completions to prefer",
}
"""Kind of a method -> heading of its table."""

_COMMON = {field.name for field in fields(UnlearningSettings)} - {"epochs", "learning_rate"}


def describe_methods(kind: str) -> str:
    """Our methods of a kind as a Markdown table, in the order of ``METHODS``.

    Example:
        >>> print(describe_methods("any").splitlines()[2].partition(" | learning_rate")[0])
        | Gradient Ascent, `gradient_ascent` | -CE(forget) | epochs 5, learning_rate 0.0005
    """
    header = ["method", "loss or change", "defaults", "grid", "source"]
    rows = [
        [f"{method.title}, `{name}`", method.formula, _list_defaults(method), _list_grid(method), method.source]
        for name, method in METHODS.items()
        if METHODS.is_own(name) and method.kind == kind
    ]
    return "\n".join(markdown_table(header, rows))


def _list_defaults(method: Method[UnlearningSettings]) -> str:
    settings = method.settings()
    named = [field.name for field in fields(settings) if field.repr and field.name not in _COMMON]
    return ", ".join(f"{name} {getattr(settings, name)}" for name in named)


def _list_grid(method: Method[UnlearningSettings]) -> str:
    return "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in method.grid.items())
