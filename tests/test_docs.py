"""What the README and the docs show is true: their blocks run, and print what stands below them.

Blocks of one ``##`` section run in order in one empty folder. ``file=NAME`` blocks are files of the page, written there
first. A text block directly below a Python or sh block is what that one prints, where a line ``...`` stands for any
lines. Below training it is ``text roughly``: machines round differently, so that numbers with a decimal point may
differ by 0.1. An sh block runs only if there is a text block.
"""

import io
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

import ruler.cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_ELSEWHERE = {"integrations.md"}  # tests/hooks/test_page.py: beside the tests that load the same heavy packages
FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
DECIMAL = re.compile(r"[+-]?\d+\.\d+")
SLACK = {"text": 1e-3, "text roughly": 0.1}


@dataclass(frozen=True)
class Block:
    """A fenced block, and the text block directly below it, if there is one."""

    language: str
    file: str | None
    body: str
    shown: str | None
    slack: float

    @property
    def is_run(self):
        return self.file is None and (self.language == "python" or (self.language == "sh" and self.shown is not None))


def read_blocks(text):
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=False):
        is_answered = following and following["info"] in SLACK and not text[fence.end() : following.start()].strip()
        shown, slack = (following["body"], SLACK[following["info"]]) if is_answered else (None, 0.0)
        language, _, file = fence["info"].partition(" file=")
        yield Block(language, file or None, fence["body"], shown, slack)


def read_files(page):
    return {block.file: block.body for block in read_blocks(page.read_text(encoding="utf-8")) if block.file}


def read_sections(page):
    """Sections that hold something to run, with the files of their page and of the page on verdicts."""
    text = page.read_text(encoding="utf-8")
    files = read_files(ROOT / "docs" / "verdicts.md") | read_files(page)
    outside_fences = re.split(r"^(?=## )", FENCE.sub(lambda f: f[0].replace("\n## ", "\n\0## "), text), flags=re.M)
    for section in outside_fences:
        blocks = [block for block in read_blocks(section.replace("\0", "")) if block.is_run]
        if blocks:
            yield section.splitlines()[0].strip("# "), files, blocks


SECTIONS = [
    pytest.param(files, blocks, id=f"{page.name}-{title}")
    for page in PAGES
    if page.name not in RUN_ELSEWHERE
    for title, files, blocks in read_sections(page)
]


def is_shown(shown, printed, slack):
    """Whether the text block says what was printed."""
    lines = [r"(?:.*\n)*?" if line == "..." else _as_pattern(line) + r"\n" for line in shown.splitlines()]
    found = re.fullmatch("".join(lines), "".join(f"{line.rstrip()}\n" for line in printed.splitlines()))
    expected = [float(number) for line in shown.splitlines() for number in DECIMAL.findall(line)]
    return found is not None and [float(number) for number in found.groups()] == pytest.approx(
        expected, rel=0, abs=slack
    )


def _as_pattern(line):
    """The line to the letter, but runs of spaces and rules of any length, for numbers of another width move columns."""
    parts = [re.sub(r"(\\-){3,}", "-+", re.sub(r"(\\ )+", " +", re.escape(part))) for part in DECIMAL.split(line)]
    return r"([+-]?\d+\.\d+)".join(parts)


def run_python(body):
    exec(compile(body, "<docs>", "exec"), {"__name__": "__docs__"})


def run_shell(body, monkeypatch):
    """Lines ``ruler ...`` and ``echo $?``, in this process."""
    status = 0
    for line in body.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        if words == ["echo", "$?"]:
            print(status)
            continue
        assert words[0] == "ruler", f"only ruler is run; got {line}"
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            ruler.cli.main()
        status = stop.value.code or 0


@pytest.mark.parametrize(("files", "blocks"), SECTIONS)
def test_section_runs_and_prints_what_it_shows(files, blocks, tmp_path, monkeypatch):
    run_section(files, blocks, tmp_path, monkeypatch)


def run_section(files, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, body in files.items():
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
        (tmp_path / name).write_text(body, encoding="utf-8")
    for block in blocks:
        printed = io.StringIO()  # one for both streams, as on a terminal
        with redirect_stdout(printed), redirect_stderr(printed):
            run_python(block.body) if block.language == "python" else run_shell(block.body, monkeypatch)
        if block.shown is not None:
            assert is_shown(block.shown, printed.getvalue(), block.slack), (
                f"{block.body}\nprints:\n{printed.getvalue()}\nbut the page shows:\n{block.shown}"
            )


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("a 1.00  b\n", "a 1.02 b\n", True),
        ("a 1.00\n", "a 1.20\n", False),
        ("3 of 5\n", "4 of 5\n", False),
        ("a\n...\nd\n", "a\nb\nc\nd\n", True),
        ("a\n...\nd\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
    ],
)
def test_text_blocks_are_compared(shown, printed, expected):
    assert is_shown(shown, printed, 0.1) is expected


def test_blocks_are_found():
    text = "```python file=a.py\nx\n```\n```sh\nruler\n```\n\n```text\nhello\n```\n"
    text += "words\n```python\ny\n```\nwords\n```text\nz\n```\n"
    found = [(block.language, block.file, block.shown, block.is_run) for block in read_blocks(text)]
    assert found[0] == ("python", "a.py", None, False)
    assert found[1] == ("sh", None, "hello\n", True)
    assert found[3] == ("python", None, None, True)


def test_pages_that_are_named_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:docs/)?[A-Za-z_]+\.md)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
