"""`ruler compare` in a fresh interpreter, with data, a method and a metric of the user's own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

PLUGIN = """
from dataclasses import replace

from ruler.metrics.peers import Peer, PeerValue
from ruler.unlearning import METHODS

HALF = replace(METHODS["gradient_ascent"], title="Half ascent")
SURE = Peer(
    "Sure",
    "How large is the largest logit, on average?",
    lambda forget_predictions: PeerValue(float(forget_predictions.logits.max(1).mean())),
    needs=("forget_predictions",),
)
"""
CONFIG = """
dataset = "own.csv"
target = "sick"
forget = "ward == west"
seeds = 2
methods = ["retrain", "half_ascent"]
metrics = ["sure", "completeness"]

[training]
epochs = 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "half.py").write_text(PLUGIN)
    info = tmp_path / "half-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ruler.methods]\nhalf_ascent = half:HALF\n[ruler.peers]\nsure = half:SURE\n"
    )
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["ward"] = rng.choice(["north", "west"], 120, p=[0.8, 0.2])
    frame["sick"] = (frame["a"] > 0).astype(int)
    frame.to_csv(tmp_path / "own.csv", index=False)
    (tmp_path / "compare.toml").write_text(CONFIG)
    return tmp_path


def run(project: Path, *words: str) -> subprocess.CompletedProcess:
    paths = os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ruler", "compare", *words]
    return subprocess.run(
        command, cwd=project, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )


def test_one_file_and_one_command_compare_a_method_and_a_metric_of_the_users_own(project: Path) -> None:
    done = run(project, "compare.toml", "--jobs", "1", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "Half ascent" in done.stdout
    assert "6 of 6 runs" in done.stdout
    table = pd.read_csv(project / "out" / "compare.csv")
    assert table["method"].tolist() == ["original", "retrain", "half_ascent"]
    assert table["sure"].notna().all()
    assert table["completeness"].between(0, 1).all()
    assert {path.name for path in (project / "out").glob("compare.*")} == {
        *("compare.html", "compare.csv", "compare.tex", "compare.parquet")
    }


def test_misuse_is_said_in_one_line(project: Path) -> None:
    done = run(project, "compare.toml", "--seeds", "1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--seeds must be set in compare.toml" in done.stderr
