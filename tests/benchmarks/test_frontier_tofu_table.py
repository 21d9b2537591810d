import json
from pathlib import Path

import pytest

from benchmarks.frontier_tofu_table import keep_rows, show_measured, write_page

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_was_measured() -> None:
    path, page = ROOT / "docs" / "bench" / "frontier_tofu.csv", (ROOT / "docs" / "frontier.md").read_text()
    shown = "\n".join(["", "<!-- measured: frontier tofu -->", *show_measured(path), "<!-- end -->", ""])
    assert shown in page
    assert path.is_file() == ("](frontier_tofu.svg)" in page) == (ROOT / "docs" / "frontier_tofu.svg").is_file()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    sides = {f"{side}_{kind}": 0.5 for side in ("retain", "forget", "held_out") for kind in ("accuracy", "loss")}
    contrasts = {f"{name}_{kind}": 0.5 for name in ("loss", "m2", "m4", "norm") for kind in ("auc", "p", "left")}
    common = sides | contrasts | {"reason": "none", "guards": ["too_few_records"]}
    retrain = common | {"model": "retrain", "cost": 0.93188, "verdict": "inconclusive"}
    short = common | {"model": "fresh-1", "cost": 0.4257, "verdict": "residual", "retain_loss": 1.45, "loss_auc": 0.01}
    original = common | {"model": "original", "cost": 5e-6, "verdict": "residual"}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (retrain, short, original)))
    return path


def test_rows_are_kept_tabulated_and_drawn(rows: Path, tmp_path: Path) -> None:
    source, page = tmp_path / "frontier_tofu.csv", tmp_path / "page.md"
    assert show_measured(source) == ["Not measured yet."]
    keep_rows(rows, source)
    assert source.read_text().splitlines()[1].startswith("retrain,0.9319,inconclusive,")
    page.write_text("<!-- measured: frontier tofu -->\n<!-- end -->\n")
    write_page(source, page)
    lines = [line for line in page.read_text().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines] == ["original", "fresh-1", "retrain"]  # the cheapest first
    assert lines[1] == "| `fresh-1` | 0.43 | residual | 0.50 | 1.45 | 0.50 | 0.50 | 0.010 | 0.500 | 0.500 | 0.500 |"
    drawn = (tmp_path / "frontier_tofu.svg").read_text()
    assert "<!-- fresh-1 -->" in drawn
    assert "<!-- original -->" not in drawn
