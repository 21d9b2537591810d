from pathlib import Path

import pytest

from ruler.unlearning import METHODS
from ruler.unlearning.overview import KINDS, describe_methods

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


@pytest.mark.parametrize("kind", sorted({method.kind for method in METHODS.values()}))
def test_the_page_has_the_table_of_every_kind(kind: str) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"## {KINDS[kind]}" in text
    assert describe_methods(kind) in text, "paste the output of ruler.unlearning.overview.describe_methods"


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
