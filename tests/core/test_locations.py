import sys
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


@pytest.mark.skipif(sys.platform != "linux", reason="platformdirs knows the other platforms")
def test_the_cache_is_where_the_platform_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RULER_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "ruler"
    monkeypatch.setenv("XDG_CACHE_HOME", "/place")
    assert cache_folder() == Path("/place/ruler")
