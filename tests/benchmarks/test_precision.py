import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import precision
from benchmarks.agreement import Shift, conclude, summarise
from benchmarks.document import write_document
from benchmarks.precision import DEFAULTS, PrecisionSettings, compare_precisions
from ruler.core.errors import InputError, UnknownNameError
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import Cell, Job

DATA = Path(os.environ.get("RULER_DATA", "/nowhere"))


def make_shift(single: float, half: float, low: float, high: float) -> Shift:
    return Shift((single,), (half,), (single, half), half - single, low, high, 0.01)


def make_outcomes(name: str, *m4: float, elapsed_s: float, m2: float = 0.0) -> list[Outcome]:
    cells = [Cell("images", "svhn", "scrub", 0.05, seed, precision=name) for seed in range(len(m4))]
    return [
        Outcome(cell, {"m4": value, "m2": m2, "test_accuracy": 0.9}, elapsed_s + cell.seed)
        for cell, value in zip(cells, m4, strict=True)
    ]


STILL = make_shift(0.0, 0.0, -0.1, 0.1)


@pytest.mark.parametrize(
    ("m4", "m2", "conclusion"),
    [
        (make_shift(0.50, 0.51, -0.02, 0.04), STILL, "same"),
        (make_shift(0.50, 0.51, 0.005, 0.015), STILL, "same, shifted"),
        (make_shift(0.50, 0.51, -0.02, 0.04), make_shift(0.0, 0.1, 0.05, 0.15), "same, shifted"),
        (make_shift(0.52, 0.54, -0.02, 0.06), STILL, "not told apart"),
        (make_shift(0.45, 0.35, -0.12, -0.08), STILL, "changed"),
        (make_shift(0.45, float("nan"), float("nan"), float("nan")), STILL, "not measured"),
    ],
)
def test_a_conclusion_rests_on_reading_and_intervals(m4: Shift, m2: Shift, conclusion: str) -> None:
    assert conclude(m4, m2) == conclusion


def test_a_row_sets_the_difference_beside_the_spread_of_seeds() -> None:
    single = make_outcomes("float32", 0.20, 0.22, 0.24, elapsed_s=6.0)
    half = make_outcomes("bfloat16", 0.21, 0.23, 0.25, elapsed_s=2.0)
    row = summarise({"float32": single, "bfloat16": half})
    assert (row.m4.difference, row.m4.seed_sd) == pytest.approx((0.01, 0.02))
    reach = 2.7764 * 0.02 * (2 / 3) ** 0.5  # Student's t with 4 degrees of freedom
    assert (row.m4.low, row.m4.high) == pytest.approx((0.01 - reach, 0.01 + reach), abs=1e-5)
    assert (row.readings, row.conclusion) == (("far below", "far below"), "same")
    assert (row.elapsed_s, row.speedup) == ((6.0, 2.0), 3.0)


def test_a_failed_cell_is_told_of(tmp_path: Path) -> None:
    single = make_outcomes("float32", 0.5, 0.51, elapsed_s=6.0)
    half = make_outcomes("bfloat16", 0.5, 0.51, elapsed_s=2.0)
    half[1] = Outcome(half[1].cell, None, 1.0, "DivergedError: loss must stay finite")
    row = summarise({"float32": single, "bfloat16": half})
    assert row.conclusion == "not measured"
    write_document([{"machine": {}, "precision": [asdict(row)]}], tmp_path)
    page = (tmp_path / "precision.md").read_text()
    assert "Failed: svhn, tabular_mlp, scrub, bfloat16: DivergedError: loss must stay finite" in page
    assert "M4 reads the same in 0 of 1 rows; 0 of 0 intervals" in page


def test_two_machines_share_a_section(tmp_path: Path) -> None:
    pair = (make_outcomes(name, *m4, elapsed_s=4.0) for name, m4 in (("float32", (0.2, 0.3)), ("bfloat16", (0.3, 0.4))))
    row = asdict(summarise(dict(zip(("float32", "bfloat16"), pair, strict=True))))
    benches = [{"machine": {"processor": name}, "precision": [row]} for name in ("abacus", "loom")]
    write_document(json.loads(json.dumps(benches)), tmp_path)
    page = (tmp_path / "precision.md").read_text()
    assert page.count("# Mixed precision") == 1
    assert page.index("processor abacus") < page.index("processor loom")
    assert page.count("| 0.250 | 0.350 | +0.100 [-0.204, +0.404] | 0.071 | far below |") == 2
    assert "M4 reads the same in 1 of 1 rows; 0 of 2 intervals leave 0 out. The largest difference is 0.100" in page


def test_pages_without_precisions_say_nothing_of_them(tmp_path: Path) -> None:
    write_document([{"machine": {}}], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["performance.md"]


def test_settings_that_cannot_be_compared_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="seeds must be a whole number of at least 2; got 1"):
        PrecisionSettings("cpu", ("higgs",), ("tabular_mlp",), n_seeds=1)
    with pytest.raises(InputError, match=r"architectures must hold one .*higgs: tabular_mlp.*; got resnet18"):
        PrecisionSettings("cpu", ("higgs",), ("resnet18",))
    with pytest.raises(UnknownNameError, match="method must be one of"):
        PrecisionSettings("cpu", ("higgs",), ("tabular_mlp",), methods=("original",))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="device must be one that torch finds here; got 'cuda'"):
        next(compare_precisions(DEFAULTS["cuda"]))


def test_the_same_cells_run_in_both_precisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not (DATA / "tabular" / "higgs.csv.gz").is_file():
        pytest.skip("RULER_DATA holds no tabular/higgs.csv.gz: set it to a folder with the paper's data")
    path = tmp_path / "bench.json"
    monkeypatch.setattr(sys, "argv", ["precision", "--json", str(path), "--size", "smoke", "--seeds", "2"])
    sys.argv += ["--architectures", "residual_mlp", "--methods", "neggrad_plus"]
    precision.main()
    numbers = json.loads(path.read_text())
    rows = numbers["precision"]
    assert "neggrad_plus, 2 seeds: " in capsys.readouterr().out
    assert numbers["machine"]["torch"]
    assert [(row["architecture"], row["method"]) for row in rows] == [
        ("residual_mlp", "original"),
        ("residual_mlp", "neggrad_plus"),
    ]
    for row in rows:
        assert not row["errors"]
        assert row["m2"]["float32"] != row["m2"]["bfloat16"]  # else precision was not in force
        assert row["m2"]["means"][0] == pytest.approx(row["m2"]["means"][1], abs=0.05)
        assert row["n_seeds"] == len(row["m4"]["float32"]) == len(row["m4"]["bfloat16"]) == 2
    write_document([numbers], tmp_path)
    assert "| higgs | residual_mlp | 5% | neggrad_plus | 2 |" in (tmp_path / "precision.md").read_text()


def test_a_run_that_is_cut_short_has_the_seeds_that_it_got_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: Job, place: object) -> list[Outcome]:
        if job.cells[0].seed == 3:
            raise KeyboardInterrupt
        scores = {"m4": 0.5 + 0.01 * job.cells[0].seed, "m2": 0.0, "test_accuracy": 0.9}
        return [Outcome(cell, scores, 1.0) for cell in job.cells]

    monkeypatch.setattr(precision, "run_job", run)
    monkeypatch.setattr(precision, "load_data", lambda *given: SimpleNamespace(distinct=None))
    settings = PrecisionSettings("cpu", ("higgs",), ("tabular_mlp",), ("scrub",), n_seeds=5)
    running = compare_precisions(settings)
    rows = [next(running) for _ in range(4)]
    with pytest.raises(KeyboardInterrupt):
        next(running)
    assert [(row.method, row.n_seeds) for row in rows] == [("original", 2), ("scrub", 2), ("original", 3), ("scrub", 3)]


def test_datasets_named_alone_take_all_their_models() -> None:
    assert precision.widen({"datasets": ("cifar10",)})["architectures"] == ("small_cnn", "resnet18")
    assert precision.widen({"n_seeds": 2}) == {"n_seeds": 2}
