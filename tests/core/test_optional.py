import pytest

from ruler.core.optional import load_optional


def test_a_missing_package_is_named_with_its_install_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(
        ImportError, match=r'the race needs the package .faiss.\. Run: pip install "ruler-audit\[bench\]"'
    ):
        load_optional("faiss", "the race")


def test_a_package_that_belongs_to_no_extra_is_named_alone():
    with pytest.raises(ImportError, match=r"Run: pip install no_such_package$"):
        load_optional("no_such_package.part", "the test")


def test_a_broken_package_shows_its_own_error(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import also_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="also_not_there"):
        load_optional("broken_package", "the test")
