"""The documentation site builds strictly, holds together, and asks nothing of the network."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from tests.test_docs import PAGES, ROOT

from ruler import AuditSettings
from ruler.embeddings.bundle.config import DataTable, EmbeddingsTable, EvidenceTable, ModelsTable

WRITTEN = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"))]
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass
class Page(HTMLParser):
    """What a page points to, what it loads, and the anchors that it has."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("canonical", "next", "prev", "alternate"):
            return
        if tag in ("script", "img", "link", "iframe", "source"):
            self.loads += [given[name] for name in ("src", "href") if name in given]


def read_pages(folder: Path) -> dict[Path, Page]:
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.mark.filterwarnings("ignore")  # of mkdocs and its plugins
def test_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = read_pages(site)
    assert len(pages) > 30
    found = {path.relative_to(site): list(find_broken(path, page, pages)) for path, page in pages.items()}
    broken = {path: links for path, links in found.items() if links}
    assert broken == {}
    fetched = {load for page in pages.values() for load in page.loads if urlsplit(load).scheme not in ("", "data")}
    assert fetched == set()
    styles = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert [style for style in styles if re.search(r"(@import|url\()\s*[\"']?https?:", style)] == []


def find_broken(path: Path, page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in [*page.links, *page.loads]:
        place, anchor = urldefrag(link)
        if urlsplit(link).scheme or (path.name == "404.html" and place.startswith("/")):
            continue
        target = (path.parent / unquote(place)).resolve() if place else path
        if target.is_dir():
            target /= "index.html"
        is_picture = anchor.endswith("-mode-only")
        if not target.is_file() or (anchor and not is_picture and unquote(anchor) not in pages[target].anchors):
            yield link


def test_every_verb_and_public_name_has_its_place(site: Path) -> None:
    import ruler
    from ruler.cli.app import VERBS

    words = (site / "cli.html").read_text(encoding="utf-8")
    assert [verb for verb in VERBS if f'id="ruler-{verb}' not in words] == []
    assert "forget.*, retain.*, held_out.*" in words
    anchors = {anchor for page in read_pages(site).values() for anchor in page.anchors}
    assert [name for name in ruler.__all__ if f"ruler.{name}" not in anchors] == []


def test_every_key_of_the_toml_file_is_in_the_reference() -> None:
    tables = {"embeddings": EmbeddingsTable, "models": ModelsTable, "data": DataTable, "evidence": EvidenceTable}
    wanted = {name: set(table.model_fields) for name, table in tables.items()}
    wanted["settings"] = set(AuditSettings.__dataclass_fields__)
    sections = re.split(r"^### ", (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections[2:]:
        name = section.split("]")[0].strip("[")
        rows = [line.split("|")[1] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| `")]
        assert set(re.findall(r"`(\w+)`", " ".join(rows))) == wanted.pop(name), name
    assert wanted == {}


def test_settings_have_the_defaults_that_the_reference_shows() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", text.partition("### [settings]")[2], flags=re.MULTILINE))
    for name, known in AuditSettings.__dataclass_fields__.items():
        written = "" if known.default is None else str(known.default).lower()
        assert shown[name].strip().strip('`"') == written, name


def test_notebooks_and_named_pages_are_shown(site: Path) -> None:
    page = (site / "notebooks" / "tabular.html").read_text(encoding="utf-8")
    assert 'class="notebook-figure"' in page
    assert 'class="notebook-output"' in page
    assert "`docs/" not in page
    assert '<a href="statistics.html">' in (site / "faq.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_written_pages_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        place, anchor = urldefrag(link)
        if urlsplit(link).scheme:
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), f"{page.name} links {link}"
        if anchor and target.suffix == ".md":
            assert anchor in list_anchors(target), f"{page.name} links {link}, which has {sorted(list_anchors(target))}"


def list_anchors(page: Path) -> set[str]:
    """Anchors of the headings, by the rule that GitHub and mkdocs share for letters, digits and spaces."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in titles)
    return {re.sub(r"[-\s]+", "-", title) for title in plain}


def test_every_page_of_the_folder_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w/]+\.md", json.dumps(yaml.safe_load(text)["nav"])))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    notebooks = {f"notebooks/{path.stem}.md" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert named == pages | notebooks
