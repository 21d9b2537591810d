from pathlib import Path

import pytest

from ruler.core.locations import cache_folder, data_folder


def test_the_environment_names_both_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULER_CACHE", "~/kept")
    monkeypatch.setenv("RULER_DATA", "/data")
    assert cache_folder() == Path.home() / "kept"
    assert data_folder() == Path("/data")


def test_data_lie_in_the_cache_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RULER_DATA", raising=False)
    monkeypatch.setenv("RULER_CACHE", "/cache")
    assert data_folder() == Path("/cache")


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", Path("/place/ruler")),
        ("win32", "LOCALAPPDATA", Path("/place/ruler")),
        ("linux", None, Path.home() / ".cache" / "ruler"),
        ("darwin", None, Path.home() / "Library" / "Caches" / "ruler"),
    ],
)
def test_each_platform_has_its_cache(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, expected: Path
) -> None:
    for name in ("RULER_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "/place")
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == expected
