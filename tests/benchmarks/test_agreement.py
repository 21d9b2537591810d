import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmarks import precision
from benchmarks.agreement import compare_pairs, describe_pairs, read_pairs
from benchmarks.document import write_document
from ruler.core.errors import FileFormatError, InputError
from ruler.stats.intervals import difference_interval

ROW = {
    **{"study": "faces", "dataset": "lfw", "architecture": "resnet18", "size": "full", "elapsed_s": 9.0},
    **{"forget_choice": "random", "forget_fraction": 0.1, "method": "scrub", "precision": "float32", "seed": 0},
    **{"m4": 0.5, "m2": -0.1, "test_accuracy": 0.9, "verdict": "residual"},
    **{"learning_rate": 5e-4, "batch_size": 128, "forget_seed": 999, "teacher_seed": None, "model": None},
    **{"machine": "a loom", "torch_version": "2.11.0", "ruler_version": "0.1.0", "commit": "abc"},
}


def save(path: Path, *rows: dict[str, Any]) -> Path:
    pd.DataFrame([ROW | row for row in rows]).to_parquet(path)
    return path


def make_runs(**same: Any) -> list[dict[str, Any]]:
    single = [{"seed": seed, "m4": 0.70 + seed / 100} for seed in (2, 0, 1)]
    half = [{"seed": seed, "m4": 0.78 + seed / 100, "precision": "bfloat16", "commit": "def"} for seed in (0, 1, 2)]
    return [same | row for row in single + half]


def test_conditions_are_compared_over_the_seeds_that_both_precisions_have(tmp_path: Path) -> None:
    lonely = {"seed": 3, "m4": 0.1}
    rows = read_pairs([save(tmp_path / "all.parquet", *make_runs(), lonely)])
    (found,) = compare_pairs(rows)
    assert (found.n_seeds, found.forget_choice, found.forget_fraction) == (3, "random", 0.1)
    assert found.m4.float32 == (0.70, 0.71, 0.72)
    assert found.m4.bfloat16 == (0.78, 0.79, 0.80)
    outside = difference_interval((0.78, 0.79, 0.80), (0.70, 0.71, 0.72))
    assert (found.m4.low, found.m4.high) == (outside.low, outside.high)
    assert (found.elapsed_s, found.speedup) == (None, None)  # not in turns
    assert describe_pairs(rows) == {
        "bfloat16 on": "a loom (torch 2.11.0, ruler 0.1.0, commit def)",
        "float32 on": "a loom (torch 2.11.0, ruler 0.1.0, commit abc)",
    }


def test_conditions_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    other: list[dict[str, Any]] = [{"forget_fraction": 0.01}, {"forget_choice": "pair"}, {"dataset": "cifar10"}]
    other += [{"method": "original", "learning_rate": None}, {"learning_rate": 1.0}, {"model": "a-bert"}]
    rows = [row for change in ({}, *other) for row in make_runs(**change)]
    found = compare_pairs(read_pairs([save(tmp_path / "all.parquet", *rows[::-1])]))
    assert [(row.dataset, row.forget_choice, row.forget_fraction, row.method) for row in found] == [
        ("cifar10", "random", 0.1, "scrub"),
        ("lfw", "pair", 0.1, "scrub"),
        ("lfw", "random", 0.01, "scrub"),
        ("lfw", "random", 0.1, "original"),
        *[("lfw", "random", 0.1, "scrub")] * 3,
    ]


def test_the_last_file_counts_and_its_verdicts_are_told(tmp_path: Path) -> None:
    first = save(tmp_path / "first.parquet", *make_runs(verdict="erased"))
    again = {"precision": "bfloat16", "verdict": "displaced", "m4": 0.2}
    last = save(tmp_path / "last.parquet", again | {"seed": 0}, again | {"seed": 2})
    (row,) = compare_pairs(read_pairs([first, last]))
    assert row.m4.bfloat16 == (0.2, 0.79, 0.2)
    assert row.verdicts == ("erased 3", "displaced 2, erased 1")


def test_an_oracle_is_compared_by_m4_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = make_runs(method="oracle", m2=float("nan"), verdict=None)
    path = save(tmp_path / "all.parquet", *oracle, *make_runs(forget_choice="pair"))
    monkeypatch.setattr(sys, "argv", ["precision", "--json", str(tmp_path / "p.json"), "--results", str(path)])
    precision.main()
    numbers = json.loads((tmp_path / "p.json").read_text())
    assert [(row["method"], row["conclusion"]) for row in numbers["precision"]] == [
        ("scrub", "same, shifted"),
        ("oracle", "same, shifted"),
    ]
    write_document([numbers], tmp_path)
    page = (tmp_path / "precision.md").read_text()
    assert "| lfw | resnet18 | pair | scrub | 3 | 0.710 | 0.790 | +0.080 " in page
    assert "| lfw | resnet18 | 10% | oracle | 3 | 0.710 | 0.790 | +0.080 " in page
    assert "| far above |  |  |  |  | 0.900 / 0.900 |  |  | same, shifted |" in page
    assert "| 0.900 / 0.900 | residual 3 |  | same, shifted |" in page
    assert "2 of 3 intervals leave 0 out" in page
    assert "Machine: bfloat16 on a loom (torch 2.11.0, ruler 0.1.0, commit def), float32 on a loom" in page


def test_a_study_in_one_precision_or_seed_is_not_compared(tmp_path: Path) -> None:
    single = save(tmp_path / "single.parquet", {"seed": 0}, {"seed": 1}, {"precision": "bfloat16"})
    with pytest.raises(InputError, match="results must hold a study in float32 and in bfloat16, with two seeds"):
        read_pairs([single])


@pytest.mark.parametrize("name", ["none.sqlite", "none.parquet"])
def test_a_missing_file_is_told_of(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"{name}, which does not exist"):
        read_pairs([tmp_path / name])


def test_files_that_hold_no_rows_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no more PAR1")
    pd.DataFrame({"study": ["faces"]}).to_parquet(tmp_path / "other.PARQUET")
    for name in ("broken.parquet", "other.PARQUET"):
        with pytest.raises(FileFormatError, match=f"results must be rows that .* wrote; got .*{name}"):
            read_pairs([tmp_path / name])
