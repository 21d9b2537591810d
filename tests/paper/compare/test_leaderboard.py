from pathlib import Path

import pandas as pd
import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.paper.compare.leaderboard import make_leaderboard

HOSTILE = "<script>alert(1)</script>"
LEFT = {"Retraining": 0.05, "SSD": 0.10, "JiT": 0.20, HOSTILE: 0.30}
METHODS = {"Retraining": "retrain", "SSD": "ssd", "JiT": "jit", HOSTILE: "own"}


def write(folder: Path, dataset: str, titles: list[str], shift: float = 0.0) -> Path:
    folder.mkdir()
    rows = [
        {
            **{"method": METHODS[title], "title": title, "dataset": dataset, "model": "tabular_mlp", "forget": "0.1"},
            **{"verdict": "erased" if title == "Retraining" or seed else "residual", "remaining": LEFT[title] + shift},
            **dict.fromkeys(("held_out_accuracy", "retain_accuracy", "forget_accuracy"), 0.9 - LEFT[title]),
            **{"cost": 1.0 if title == "Retraining" else 0.1, "seed": seed},
        }
        for title in titles
        for seed in range(2)
    ]
    pd.DataFrame(rows).to_parquet(folder / "compare.parquet")
    return folder


def test_methods_are_ranked_over_comparisons_and_set_beside_retraining(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / "one", "adult", [*LEFT]),
        write(tmp_path / "two", "own.csv", ["Retraining", "SSD", HOSTILE], 0.1),
        write(tmp_path / "javascript:x", "phoneme", ["Retraining", "SSD", HOSTILE], 0.2),
    ]
    page = make_leaderboard(folders, tmp_path / "board")
    numbers = pd.read_csv(tmp_path / "board" / "leaderboard.csv")
    assert len(numbers) == 10
    assert numbers.loc[numbers["title"] == "SSD", "remaining_gap"].to_numpy() == pytest.approx([0.05] * 3)
    assert numbers.loc[numbers["title"] == "SSD", "accuracy_gap"].to_numpy() == pytest.approx([-0.05] * 3)
    assert numbers.loc[numbers["title"] == "SSD", "erased"].tolist() == [0.5] * 3
    text = page.read_text()
    assert "3 comparisons: SSD ranks best</h1>" in text  # the same order three times: p is 0.0498
    assert "Not ranked, since a number is missing: JiT." in text
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert 'href="../one/compare.html"' in text
    assert 'href="../javascript%3Ax/compare.html"' in text
    few = make_leaderboard(folders[:2], tmp_path / "few").read_text()
    assert "2 comparisons: SSD ranks best, but the methods cannot be told apart" in few


def test_what_is_no_comparison_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "adult", [*LEFT])
    with pytest.raises(InputError, match="at least two different ones"):
        make_leaderboard([one, one], tmp_path / "board")
    with pytest.raises(FileFormatError, match=r"must hold compare\.parquet"):
        make_leaderboard([one, tmp_path], tmp_path / "board")
    other = write(tmp_path / "two", "adult", [*LEFT])
    table = pd.read_parquet(other / "compare.parquet")
    for broken in (table.drop(columns="cost"), table.assign(verdict="fine"), table.assign(remaining="x")):
        broken.to_parquet(other / "compare.parquet")
        with pytest.raises(FileFormatError, match="Compare again"):
            make_leaderboard([one, other], tmp_path / "board")
