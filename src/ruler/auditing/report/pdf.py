"""report.html -> report.pdf, printed by a Chromium that finds no network."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ruler.core.errors import InputError, shorten

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--proxy-server=127.0.0.1:9",  # nobody listens there: nothing is fetched, whatever the page says
    "--no-pdf-header-footer",
)
_SECONDS = 120


def find_browser() -> str:
    """The path of a Chromium.

    Raises:
        InputError: None is installed.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise InputError(
            f"report.pdf must be printed by Chromium; got none of {', '.join(_BROWSERS)} on PATH. "
            "Install one, or leave the PDF out and print report.html."
        )
    return browser


def print_page(page: Path, pdf: Path) -> bytes:
    """Print a page, all records included, and give the bytes of the PDF.

    Raises:
        InputError: There is no Chromium, or it fails.
    """
    browser = find_browser()
    with tempfile.TemporaryDirectory(prefix="ruler-print-") as profile:
        options = [*_OPTIONS, f"--user-data-dir={profile}", f"--print-to-pdf={pdf}", page.absolute().as_uri()]
        try:
            is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # as in containers, where there is no sandbox
            command = [browser, *(["--no-sandbox"] if is_root else []), *options]
            subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
            if pdf.is_file():
                return pdf.read_bytes()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"report.pdf must be printed by Chromium; {browser} failed: {shorten(error)}") from error
    raise InputError(f"report.pdf must be printed by Chromium; {browser} wrote nothing. Print report.html instead.")
