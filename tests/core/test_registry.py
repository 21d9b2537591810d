import pytest

from ruler.core.errors import RulerError
from ruler.core.registry import Registry


def test_known_names_are_found_in_order():
    table = Registry("fruit", {"pear": 1, "apple": 2})
    assert (list(table), len(table), table["apple"], "pear" in table) == (["pear", "apple"], 2, 2, True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("appel", r"fruit must be one of apple, pear; got 'appel'\. Did you mean 'apple'\?"),
        ("zzz", r"fruit must be one of apple, pear; got 'zzz'\.$"),
    ],
)
def test_unknown_names_get_the_nearest_one(name, message):
    with pytest.raises(ValueError, match=message):
        Registry("fruit", {"pear": 1, "apple": 2})[name]


def test_every_error_is_a_ruler_error_and_a_builtin():
    from ruler.core import errors

    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, RulerError)]
    assert len(kinds) > 8
    for kind in kinds:
        if kind is not RulerError:
            assert any(base.__module__ == "builtins" and base is not Exception for base in kind.__mro__[:-3])
            assert f"{kind.__name__} " in errors.__doc__
