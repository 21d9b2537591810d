"""Take the README's picture: the first screen of a report, as Chromium shows it at 1280 pixels.

After ``ruler demo``, from the project's root: ``python docs/report_image.py ruler-demo/fine_tuning``.
It needs playwright (``pip install playwright``) and a Chromium on PATH.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGE = Path(__file__).parent / "images" / "report.png"
SIZE = {"width": 1280, "height": 800}


def take_picture(folder: Path) -> None:
    """Write the first screen of ``folder/report.html`` to docs/images/report.png."""
    IMAGE.parent.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"],
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto((folder / "report.html").resolve().as_uri())
        page.screenshot(path=str(IMAGE))
        browser.close()


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]))
