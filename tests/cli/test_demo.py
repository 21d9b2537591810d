"""`ruler demo`: one method that fails and one that does not, audited, with reports and files to go on with."""

import shlex

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ruler
from ruler.auditing import Report
from ruler.auditing.report.words import format_remaining
from ruler.cli.app import make_app
from ruler.embeddings.sides import load_model_folder

METHODS = {"fine_tuning": "residual", "retraining": "erased"}
SIZES = {"forget": 300, "retain": 897, "held_out": 600}


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What the demo printed, and where it saved."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    n_threads = torch.get_num_threads()
    done = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1"}).invoke(make_app(), ["demo", "--out", str(folder)])
    torch.set_num_threads(n_threads)
    assert done.exit_code == 0, done.output
    return done.output, folder


def test_it_finds_the_method_that_fails_and_clears_the_one_that_does_not(shown):
    for method, verdict in METHODS.items():
        report = Report.load(shown[1] / method)
        assert report.verdict == verdict
        assert {"m2", "m4", "norm", "loss", "readout", "tangent"} <= report.metrics.keys()
        assert {report.metrics[name].control.kind for name in ("m2", "m4", "norm", "loss")} == {"held-out"}
        assert [guard.severity for guard in report.guards if guard.severity == "fail" or guard.blocks] == []
        assert len(report.records) == SIZES["forget"]
        assert sorted(report.answers) == ["oracle", "original", "unlearned"]


def test_it_says_what_was_done_and_what_was_found(shown):
    text = " ".join(shown[0].split())
    assert "300 of 1197 training images came from a source with wrong labels" in text
    assert "ranks no method" in text
    assert "Fine-Tuning: RESIDUAL." in text
    assert "Retraining: ERASED." in text
    for method in METHODS:
        report = Report.load(shown[1] / method)
        assert format_remaining(report.outputs.remaining) in text
        assert format_remaining(report.layers.remaining) in text
    for method in METHODS:
        assert (shown[1] / method / "report.html").is_file()
        assert str(shown[1] / method / "report.html") in shown[0]


def test_the_embeddings_are_those_of_the_reports(shown):
    rows = dict(zip(SIZES, load_model_folder(shown[1] / "embeddings" / "retraining"), strict=True))
    assert {side: part.shape for side, part in rows.items()} == {side: (n, 64) for side, n in SIZES.items()}
    assert rows["forget"].losses is not None
    assert np.isfinite(ruler.m4(rows["forget"], rows["retain"]))


def test_the_next_command_gives_the_same_verdict(shown, tmp_path):
    command = shown[0][shown[0].index("ruler audit ") :]
    done = CliRunner().invoke(make_app(), [*shlex.split(command)[1:], "--out", str(tmp_path / "report")])
    assert done.exit_code == 1, done.output
    first, again = Report.load(shown[1] / "fine_tuning"), Report.load(tmp_path / "report")
    assert again.verdict == first.verdict
    for name in ("m2", "m4", "norm", "loss"):
        assert again.metrics[name].effect == pytest.approx(first.metrics[name].effect)


def test_out_must_be_a_folder(tmp_path):
    (tmp_path / "taken").write_text("")
    done = CliRunner().invoke(make_app(), ["demo", "--out", str(tmp_path / "taken")])
    with pytest.raises(ruler.RulerError, match="--out must be a folder; got the file"):
        raise done.exception
