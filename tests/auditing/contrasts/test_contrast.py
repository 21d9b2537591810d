"""The table of contrasts is open: a metric from another package, in one file, is measured and reported."""

import json
import subprocess
import sys

import numpy as np
import pytest
from tests.auditing.cases import run_audit, score_peak

from ruler.auditing.contrasts import CONTRASTS, OWN, Contrast

PACKAGE = '''
"""How peaked a representation is: its largest coordinate over its norm."""

import numpy as np

from ruler.auditing.contrasts import Contrast


def score_peak(model, oracles):
    return {
        side: np.abs(rows).max(axis=1) / np.linalg.norm(rows, axis=1) for side, rows in model.rows.items()
    }


PEAK = Contrast(
    title="Peakedness",
    score=score_peak,
    question="Does one coordinate carry the forget records?",
    reading="1 is a single coordinate.",
)
'''
RUN = "import sys; from ruler.cli import main; sys.argv[0] = 'ruler'; main()"


def test_a_metric_of_another_package_is_shown_by_ruler_audit(tmp_path, build_world):
    package = tmp_path / "package"
    info = package / "peaks-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "peaks.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: peaks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ruler.metrics]\npeak = peaks:PEAK\n")
    (tmp_path / "model").mkdir()
    for side, rows in zip(("forget", "retain", "held_out"), build_world().model(1.0), strict=True):
        np.save(tmp_path / "model" / f"{side}.npy", rows)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(package)!r})\n{RUN}"]
    command += ["audit", "--unlearned", str(tmp_path / "model"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 3), done.stderr
    found = json.loads((tmp_path / "out" / "report.json").read_text())["metrics"]["peak"]
    assert (found["verdict"], found["control"]["kind"], found["control"]["n_forget"]) == (
        "descriptive",
        "held-out",
        150,
    )
    assert found["p_value"] <= 1
    page = (tmp_path / "out" / "report.html").read_text()
    for words in (
        "Peakedness",
        'id="scores-peak',
        "Does one coordinate carry the forget records?",
        "1 is a single coordinate.",
    ):
        assert words in page
    assert "peak" in done.stdout


def test_a_descriptive_metric_changes_nothing_else(build_world, table):
    world = build_world()
    models = {"model": world.model(0.3, 0.2), "oracle": world.model(0.0, 0.0), "original": world.model(1.0, 1.0)}
    alone = run_audit(**models, table=OWN)
    table.register("peak", Contrast("Peakedness", score_peak))
    report = run_audit(**models, table=table)
    peak = report.metrics["peak"]
    assert (report.verdict, report.reason, report.needs) == (alone.verdict, alone.reason, alone.needs)
    assert {name: one for name, one in report.metrics.items() if name != "peak"} == dict(alone.metrics)
    assert peak.reason == "It is descriptive and has no part in the verdict."
    assert peak.value == pytest.approx(np.mean(np.abs(models["model"][0].values).max(axis=1)))
    assert report.records["peak"].to_numpy() == pytest.approx(np.abs(models["model"][0].values).max(axis=1))


def test_a_deciding_metric_joins_the_correction_and_the_verdict(build_world, table):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(850, 6))
    rows[:150] *= 3.0  # no direction tells: without an oracle, ours see nothing
    rows[:10] *= 30.0
    model = tuple(np.split(rows, [150, 550]))
    alone = run_audit(model, OWN)
    table.register("peak", Contrast("Peakedness", score_peak, decides=True, low="flat", high="peaked"))
    report = run_audit(model, table)
    assert alone.verdict == "inconclusive"
    assert report.verdict == report.metrics["peak"].verdict == "residual"
    assert report.layers.verdict == "residual"  # of a contrast that says nothing else
    assert report.metrics["m4"].place.p_value >= alone.metrics["m4"].place.p_value
    assert set(report.records["finding"]) & {"peaked"}


def test_users_register_by_a_plain_call_and_cannot_replace_ours():
    with pytest.raises(ValueError, match="metric names must be unique; got 'm2' a second time"):
        CONTRASTS.register("m2", Contrast("Mine", score_peak))
    with pytest.raises(ValueError, match="metric 'mine' must be a Contrast; got a function"):
        CONTRASTS.register("mine", score_peak)


def test_a_metric_is_measured_at_every_layer_and_decides_nothing_unless_it_says_so(build_world, table):
    table.register("peak", Contrast("Peakedness", score_peak))
    model = tuple({"first": rows, "last": rows[:, :3]} for rows in build_world(0, sizes=(30, 60, 40)).model())
    found = run_audit(model, table).metrics["peak"]
    assert [layer.layer for layer in found.layers] == ["first", "last"]
    assert found.verdict == "descriptive"


def test_where_memory_puts_forget_records():
    """Which side of held-out records, which scores make one record stand out, and which contrasts decide, of what."""
    assert {name: (one.residual_side, one.record_tail, one.decides, one.family) for name, one in OWN.items()} == {
        "m1": (-1, "low", False, "layers"),
        "m2": (-1, "low", True, "layers"),
        "m3": (0, "both", False, "layers"),
        "m4": (1, "both", True, "layers"),
        "norm": (0, "both", True, "layers"),
        "loss": (1, "both", True, "outputs"),
        "readout": (1, "both", True, "layers"),
        "tangent": (1, "both", True, "layers"),
        "relearned": (1, "both", True, "layers"),
    }


def test_rulers_measure_on_the_side_of_memory():
    assert {name for name, one in OWN.items() if one.is_ruler} == {"loss", "readout", "tangent", "relearned"}
    assert all(one.residual_side == 1 for one in OWN.values() if one.is_ruler)
