"""A headless Chromium and a headless Firefox that reach nothing but the files of a test."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.firefox import Firefox, find_firefox

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("needs Chromium on PATH: apt-get install chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=_QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def firefox() -> Iterator[Firefox]:
    path = find_firefox()
    if path is None:
        pytest.skip("needs Firefox on PATH: apt-get install firefox-esr")
    browser = Firefox(path)
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """JavaScript that looks for what people who hear, enlarge or recolour a page would stumble over."""
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-core: pip install axe-playwright-python")
    return Path(package.__file__).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def open_report(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page, or that of a report; at the end, any console error or request for another file fails the test."""
    faults: list[str] = []
    contexts = []

    def open_page(report: Any, *, width: int = 1280, scheme: str = "light", **options: Any) -> Any:
        page_file = report
        if not isinstance(report, Path):
            page_file = report.save(tmp_path / f"report-{len(contexts)}") / "report.html"
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **options)
        contexts.append(context)
        context.set_default_timeout(15_000)
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None if request.url in (page_file.as_uri(), "data:,") else faults.append(f"request: {request.url}")
            ),
        )
        page.goto(page_file.as_uri())
        return page

    open_page.faults = faults
    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
