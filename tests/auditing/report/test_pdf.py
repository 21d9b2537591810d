"""The PDF is what a Chromium prints without a network; what it does not print is said. Stand-ins take its place."""

import os
import sys

import pytest

from ruler.auditing.report.pdf import find_browser, print_page
from ruler.core.errors import InputError

PRINTER = """#!{python}
import pathlib, sys
(target,) = [word.partition("=")[2] for word in sys.argv if word.startswith("--print-to-pdf=")]
pathlib.Path(target).write_bytes(b"%PDF of " + sys.argv[-1].encode())
pathlib.Path(target).with_suffix(".words").write_text("\\n".join(sys.argv[1:]))
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put programs of these names, and no others, on PATH."""
    (tmp_path / "programs").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))

    def install(name, text=PRINTER):
        path = tmp_path / "programs" / name
        path.write_text(text.replace("{python}", sys.executable))
        path.chmod(0o755)
        return str(path)

    return install


@pytest.fixture
def page(tmp_path):
    page = tmp_path / "a report.html"
    page.write_text("<p>Records</p>")
    return page


def test_the_first_browser_is_taken(install):
    expected = [install(name) for name in ("google-chrome", "chromium-browser", "chromium")]
    assert find_browser() == expected[-1]


def test_without_a_browser_it_is_said_what_to_install(install, page, tmp_path):
    for call in (find_browser, lambda: print_page(page, tmp_path / "out.pdf")):
        with pytest.raises(InputError, match=r"printed by Chromium; got none of chromium, .* on PATH\. Install one"):
            call()


def test_the_page_is_printed_without_a_network(install, page, tmp_path):
    install("chromium")
    assert print_page(page, tmp_path / "out.pdf") == f"%PDF of {page.as_uri()}".encode()
    words = (tmp_path / "out.words").read_text().splitlines()
    assert "--headless" in words
    assert "--proxy-server=127.0.0.1:9" in words
    assert ("--no-sandbox" in words) == (os.geteuid() == 0)
    (profile,) = [word.partition("=")[2] for word in words if word.startswith("--user-data-dir=")]
    assert not os.path.exists(profile)  # nothing of the run stays


@pytest.mark.parametrize("text", ["#!{python}\n", "#!{python}\nraise SystemExit(3)\n"], ids=["silent", "failing"])
def test_a_browser_that_writes_nothing_is_said(install, page, tmp_path, text):
    browser = install("chromium", text)
    with pytest.raises(InputError, match=f"{browser} wrote nothing. Print report.html instead"):
        print_page(page, tmp_path / "out.pdf")


def test_a_browser_that_cannot_start_is_said(install, page, tmp_path):
    browser = install("chromium", "#!/no/such/interpreter\n")
    with pytest.raises(InputError, match=f"{browser} failed: .*No such file"):
        print_page(page, tmp_path / "out.pdf")
