"""Take the pictures of README.md and docs/report.md: a report on a desktop, in the dark, on a phone and on paper.

After ``ruler demo``, from the project's root: ``python docs/report_image.py ruler-demo/fine_tuning``.
It needs playwright (``pip install playwright``), and a Chromium and ``pdftoppm`` (poppler-utils) on PATH.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
SCREENS = {"report": (1280, 800, "light"), "report_dark": (1280, 800, "dark"), "report_phone": (390, 800, "light")}
PAPER_HEIGHT = 560


def take_pictures(folder: Path) -> None:
    """Write the first screens of ``folder/report.html``, and some of its pages on paper, to docs/images."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"],
        )
        page_file = (folder / "report.html").resolve().as_uri()
        for name, (width, height, scheme) in SCREENS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            page.goto(page_file)
            page.screenshot(path=str(IMAGES / f"{name}.png"))
        print_pages(browser, page_file)
        browser.close()


def print_pages(browser: Browser, page_file: str) -> None:
    """The first pages on paper, and the first one of the annex with all records, side by side."""
    with tempfile.TemporaryDirectory() as folder:
        page = browser.new_page()
        page.goto(page_file)
        page.pdf(path=f"{folder}/report.pdf", prefer_css_page_size=True)
        subprocess.run(["pdftoppm", "-r", "80", "-png", f"{folder}/report.pdf", f"{folder}/page"], check=True)
        pages = [Image.open(path).convert("RGB") for path in sorted(Path(folder).glob("page-*.png"))]
    annex = next(one for one in pages if one.width > one.height)
    shown = [one.resize((PAPER_HEIGHT * one.width // one.height, PAPER_HEIGHT)) for one in (*pages[:2], annex)]
    sheet = Image.new("RGB", (sum(one.width for one in shown) + 12 * (len(shown) + 1), PAPER_HEIGHT + 24), "#8a8f98")
    x = 12
    for one in shown:
        sheet.paste(one, (x, 12))
        x += one.width + 12
    sheet.quantize(256).save(IMAGES / "report_print.png", optimize=True)


if __name__ == "__main__":
    take_pictures(Path(sys.argv[1]))
