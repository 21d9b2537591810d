"""The tables of docs/methods.md: what each method minimises, its defaults, its source and what is worth trying."""

from dataclasses import fields
from pathlib import Path

import pytest

from ruler.core.text import markdown_table
from ruler.unlearning import METHODS, UnlearningSettings

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


KINDS = {
    "any": "For classifiers and language models",
    "classifier": "For classifiers",
    "language": "For language models",
    "preferences": "For language models, with completions to prefer",
}
COMMON = {field.name for field in fields(UnlearningSettings)} - {"epochs", "learning_rate"}


def describe_methods(kind: str) -> str:
    rows = []
    for name, method in METHODS.items():
        if METHODS.is_own(name) and method.kind == kind:
            settings = method.settings()
            shown = [field.name for field in fields(settings) if field.repr and field.name not in COMMON]
            defaults = ", ".join(f"{field} {getattr(settings, field)}" for field in shown)
            grid = "; ".join(f"{field} {', '.join(map(str, values))}" for field, values in method.grid.items())
            rows.append([f"{method.title}, `{name}`", method.formula, defaults, grid, method.source])
    return "\n".join(markdown_table(["method", "loss or change", "defaults", "grid", "source"], rows))


@pytest.mark.parametrize("kind", sorted({method.kind for method in METHODS.values()}))
def test_the_page_has_the_table_of_every_kind(kind: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"## {KINDS[kind]}" in text
    assert describe_methods(kind) in text, f"paste this into docs/methods.md:\n{describe_methods(kind)}"


def test_every_method_of_ours_says_what_it_minimises_and_whose_it_is() -> None:
    own = [method for name, method in METHODS.items() if METHODS.is_own(name)]
    assert all(method.formula and method.source for method in own)
    assert len({method.colour for method in own}) == len(own)
    assert len({method.short for method in own}) == len(own)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS.is_own(name) and name != "retrain"])
def test_every_grid_holds_the_defaults_and_few_choices(name: str) -> None:
    method, defaults = METHODS[name], METHODS[name].settings()
    assert all(getattr(defaults, key) in values for key, values in method.grid.items())
    assert 2 <= len(method.list_choices()) <= 6
