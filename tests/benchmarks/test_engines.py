import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.engines import CONDITION, METRICS, compare_conditions, describe, judge, main, read_rows
from ruler.core.errors import InputError
from ruler.stats.intervals import difference_interval

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs" / "bench" / "engines.csv"


def make_rows(engine: str, *, shift: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Two datasets, two methods and two fractions on five seeds; the oracle has no M1, M2 and M3."""
    rng = np.random.default_rng(seed)
    places = pd.MultiIndex.from_product(
        [["adult", "magic"], ["scrub", "oracle"], [0.05, 0.1], range(5)], names=[*CONDITION, "seed"]
    )
    rows = places.to_frame(index=False).assign(study="primary", engine=engine)
    for metric in METRICS:
        rows[metric] = rng.normal(0.5, 0.01, len(rows)) + (shift if metric == "m4" else 0.0)
    rows.loc[rows["method"] == "oracle", ["m1", "m2", "m3"]] = np.nan
    return rows


def test_the_page_shows_what_was_measured() -> None:
    (shown,) = re.findall(
        r"<!-- measured: engines -->\n(.*?)\n<!-- end -->", (ROOT / "docs" / "reproduction.md").read_text(), re.DOTALL
    )
    table = pd.read_csv(MEASURED)
    assert shown.startswith("\n".join(describe(table)))
    assert (table["n"] == 10).all()
    counts = table.groupby("metric").size()
    assert counts.to_dict() == {**dict.fromkeys(METRICS, 180), "m1": 150, "m2": 150, "m3": 120}


def test_conditions_have_their_means_and_welchs_interval() -> None:
    protocol, ensemble = make_rows("protocol"), make_rows("ensemble", shift=0.05, seed=1)
    table = compare_conditions(protocol, ensemble.sample(frac=1.0, random_state=0))
    assert table.groupby("metric").size().to_dict() == {**dict.fromkeys(METRICS, 8), "m1": 4, "m2": 4, "m3": 4}
    row = table[(table["metric"] == "m4") & (table["dataset"] == "magic") & (table["method"] == "scrub")].iloc[0]
    chosen = "dataset == 'magic' and method == 'scrub' and forget_fraction == 0.05"
    ours, theirs = ensemble.query(chosen)["m4"], protocol.query(chosen)["m4"]
    expected = difference_interval(ours, theirs)
    assert (row["low"], row["high"], row["n"]) == pytest.approx((expected.low, expected.high, 5))
    assert (row["ensemble"], row["protocol_sd"]) == pytest.approx((ours.mean(), theirs.std()))


def test_a_shift_is_seen_and_alike_engines_are_not_told_apart() -> None:
    def read(shift: float) -> dict[str, list[str]]:
        table = compare_conditions(make_rows("protocol"), make_rows("ensemble", shift=shift, seed=1))
        lines = [line.strip("| ").split(" | ") for line in [*describe(table)][2:]]
        return {line[0]: line[1:] for line in lines}

    shifted, alike = read(0.2), read(0.0)
    assert shifted["M4"][:2] == ["8", "0.0%"]
    assert shifted["M4"][2].startswith("+0.20") or shifted["M4"][2].startswith("+0.19")
    assert shifted["test accuracy"] == alike["test accuracy"]
    assert float(alike["M4"][3]) > 0.05


def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    make_rows("protocol").to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="must hold rows of the study primary by the engine ensemble; got none"):
        read_rows(tmp_path / "rows.parquet", "ensemble")
    half = make_rows("ensemble").query("dataset == 'adult'")
    with pytest.raises(InputError, match="both engines must have the same conditions of m1; got others"):
        compare_conditions(make_rows("protocol"), half)


def test_numbers_of_the_paper_are_counted() -> None:
    protocol = read_rows(ROOT / "docs" / "results.parquet", "protocol")
    other = protocol.assign(engine="ensemble", mia=protocol["mia"] + 0.1 * (protocol["dataset"] == "adult"))
    lines = [*judge(protocol, other)]
    assert lines[0].startswith("Of the 429 numbers that the paper prints of this study, 421 agree by the protocol and")
    assert len(lines) > 10
    assert all("Table 3" in line or ("Table 4" in line and "adult" in line) for line in lines[4:])
    assert all(line.count("(differs)") == 1 for line in lines[4:])


def test_the_page_and_the_means_are_those_of_the_kept_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, csv = tmp_path / "page.md", tmp_path / "engines.csv"
    written = (ROOT / "docs" / "reproduction.md").read_text()
    page.write_text(written.replace(next(line for line in written.splitlines() if line.startswith("| M2 |")), "old"))
    rows = (ROOT / "docs" / name for name in ("results.parquet", "results_ensemble.parquet"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", *map(str, (*rows, "--csv", csv, "--page", page))])
    main()
    assert page.read_text() == written
    assert csv.read_bytes() == MEASURED.read_bytes()
