"""The notebooks of the docs run, and their verdicts are those that they show."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.test_docs import ROOT
from tools.notebooks import run_notebook

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
VERDICTS = ("erased", "residual", "displaced", "damaged", "inconclusive", "invalid")
CLOSE_CALLS = {"erased": "not accused", "inconclusive": "not accused"}  # machines round differently


def list_verdicts(notebook: dict[str, Any]) -> list[str]:
    """Lines of the outputs that are a verdict."""
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    lines = [line.strip() for output in outputs for line in output.get("text", [])]
    return [CLOSE_CALLS.get(line, line) for line in lines if line in VERDICTS]


def list_kinds(notebook: dict[str, Any]) -> list[list[str]]:
    """What each cell puts out: text, a value, a figure."""
    return [[output["output_type"] for output in cell.get("outputs", [])] for cell in notebook["cells"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_what_it_holds(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    found = run_notebook(path)
    assert len(list_verdicts(stored)) >= 2
    assert list_verdicts(found) == list_verdicts(stored)
    assert list_kinds(found) == list_kinds(stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_small_plain_and_names_no_place(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert "site-packages" not in text
    cells = json.loads(text)["cells"]
    assert cells[0]["source"][0].startswith("# ")
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(len(line) <= 160 for cell in cells for line in cell["source"])


def test_three_kinds_of_models_have_a_notebook() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["images", "language_model", "tabular"]
