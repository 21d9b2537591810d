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


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """A scratch package with two entry points: a good one and one that cannot be loaded."""
    (tmp_path / "orchard.py").write_text("plum = 3\n")
    info = tmp_path / "orchard-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: orchard\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ruler.fruits]\nplum = orchard:plum\nrotten = orchard:absent\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugins")
def test_entries_of_other_packages_are_found_and_broken_ones_left_out_with_a_warning():
    table = Registry("fruit", {"pear": 1}, group="ruler.fruits", type=int)
    with pytest.warns(UserWarning, match="fruit 'rotten' of orchard is left out"):
        assert dict(table) == {"pear": 1, "plum": 3}
    assert (table.is_own("pear"), table.is_own("plum")) == (True, False)


def test_users_add_their_own_but_take_no_name_twice():
    table = Registry("fruit", {"pear": 1}, type=int)
    assert table.register("plum", 3) == 3 == table["plum"]
    table.register("plum", 3)
    for name, value in (("pear", 2), ("plum", 4)):
        with pytest.raises(ValueError, match="fruit names must be unique"):
            table.register(name, value)
    with pytest.raises(ValueError, match="fruit 'fig' must be a int; got a str"):
        table.register("fig", "4")
