import hashlib
import io

import pytest

from ruler.core.errors import DownloadError
from ruler.data.homes.download import RemoteFile, downloaded

CONTENT = b"0123456789" * 300_000
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _get(url, *, algorithm="sha256", checksum=SHA, max_bytes=4_000_000, progress=False):
    remote = RemoteFile(url, algorithm, checksum, max_bytes)
    with downloaded(remote, title="Thing", file="images/thing.npz", progress=progress) as path:
        return path, path.read_bytes()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": str(len(CONTENT))}])
def test_file_is_whole_while_needed_and_gone_afterwards(serve, cache, headers):
    path, content = _get(f"{serve({'/x': (CONTENT, headers)})}/x")
    assert content == CONTENT
    assert not path.exists()
    assert list(cache.iterdir()) == []


def test_md5_is_a_checksum_too(serve):
    checksum = hashlib.md5(CONTENT).hexdigest()
    assert _get(f"{serve({'/x': (CONTENT, {})})}/x", algorithm="md5", checksum=checksum)[1] == CONTENT


@pytest.mark.parametrize(
    ("headers", "limits", "message"),
    [
        ({}, {"checksum": "0" * 64}, f"sha256 {SHA} instead of the published 000"),
        ({}, {"max_bytes": 1_500_000}, "more than the 1500000 bytes that are expected"),
        ({"Content-Length": "3000000"}, {"max_bytes": 9}, "3000000 bytes, more than the 9 that are expected"),
        ({"Content-Length": "3000009"}, {}, "IncompleteRead|only 3000000 of 3000009 bytes"),
    ],
)
def test_anything_else_is_refused_and_not_kept(serve, cache, headers, limits, message):
    url = serve({"/x": (CONTENT, headers)})
    with pytest.raises(DownloadError, match=message):
        _get(f"{url}/x", **limits)
    assert list(cache.iterdir()) == []


def test_out_of_reach_says_what_to_do(serve):
    with pytest.raises(
        DownloadError, match=r"Thing must come from http.*/y; got HTTPError: .*404.* put images/thing\.npz"
    ):
        _get(f"{serve({})}/y")


def test_bar_is_shown_on_a_terminal_alone(serve, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("ruler.core.progress._PATIENCE_S", -1.0)
    url = serve({"/x": (CONTENT, {"Content-Length": str(len(CONTENT))})})
    for is_terminal, progress in ((True, True), (True, False), (False, True)):
        screen = io.StringIO()
        screen.isatty = lambda answer=is_terminal: answer
        monkeypatch.setattr("sys.stderr", screen)
        _get(f"{url}/x", progress=progress)
        assert ("Fetching Thing" in screen.getvalue()) == (is_terminal and progress)
