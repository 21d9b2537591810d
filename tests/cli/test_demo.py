"""`ruler demo`: one method that fails and one that does not, audited, with reports and files to go on with."""

import re
import shlex

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ruler
from ruler.auditing import Report
from ruler.cli.app import app

METHODS = ("fine_tuning", "scrub")


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the demo printed, and where it saved."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    n_threads = torch.get_num_threads()
    done = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(app, ["demo", "--out", str(folder)])
    torch.set_num_threads(n_threads)
    assert done.exit_code == 0, done.output
    return done.output, folder


def test_it_finds_the_method_that_fails(shown):
    _, folder = shown
    reports = {method: Report.load(folder / method) for method in METHODS}
    assert reports["fine_tuning"].verdict == "residual"
    assert reports["scrub"].verdict in ("erased", "inconclusive")
    assert abs(reports["scrub"].metrics["m2"].effect - 0.5) < 0.1
    for report in reports.values():
        assert report.guards == []
        assert report.metrics["m2"].control == "held-out"
        assert len(report.records) == 68
        assert sorted(report.outputs) == ["oracle", "original", "unlearned"]


def test_outputs_alone_would_have_been_fooled(shown):
    outputs = Report.load(shown[1] / "fine_tuning").outputs
    assert outputs["original"]["forget_accuracy"] > 0.5
    assert outputs["unlearned"]["forget_accuracy"] < 0.2


def test_it_says_what_was_done_and_what_was_found(shown):
    text = " ".join(shown[0].split())
    assert "68 of 455 training records got a wrong label on purpose" in text
    assert "ranks no method" in text
    assert "Fine-Tuning: RESIDUAL." in text
    for method in METHODS:
        assert (shown[1] / method / "report.html").is_file()
        assert str(shown[1] / method / "report.html") in shown[0]


def test_the_embeddings_are_those_of_the_reports(shown):
    _, folder = shown
    rows = {side: np.load(folder / "embeddings" / f"scrub_{side}.npy") for side in ("forget", "retain")}
    assert rows["forget"].shape == (68, 128)
    assert np.isfinite(ruler.m4(rows["forget"], rows["retain"]))


def test_the_next_command_gives_the_same_verdict(shown, tmp_path):
    command = shown[0][shown[0].index("ruler audit ") :]
    words = shlex.split(re.sub(r"\\\n", " ", command))[1:]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "report")])
    assert done.exit_code == 1, done.output
    first, again = Report.load(shown[1] / "fine_tuning"), Report.load(tmp_path / "report")
    assert again.verdict == first.verdict
    assert all(again.metrics[name] == first.metrics[name] for name in ("m2", "m4"))
    assert again.records.equals(first.records)


def test_out_must_be_a_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "taken")])
    with pytest.raises(ruler.RulerError, match="--out must be a folder; got the file"):
        raise done.exception
