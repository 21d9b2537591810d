"""A bundle from a stranger: what lies in it is read, and nothing in it runs but a file that its TOML names."""

import importlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from tests.fuzz.bundles import BUNDLES, SIZES, audit_trapped, import_traps, write_embeddings, write_project

LABORATORY = ("data", "experiment", "models", "paper", "training", "unlearning")


def test_the_verb_loads_nothing_of_the_laboratory(run_python):
    code = "import sys, ruler.cli.audit; print(*sorted(name for name in sys.modules if name.startswith('ruler.')))"
    loaded = run_python(code).split()
    assert "ruler.cli.audit" in loaded
    assert [name for name in loaded if name.split(".")[1] in LABORATORY] == []


@pytest.mark.parametrize("kind", BUNDLES)
def test_nothing_that_lies_in_a_bundle_runs(tmp_path, kind):
    bundle, marks = tmp_path / "bundle", tmp_path / "marks"
    done = audit_trapped(tmp_path, kind)
    assert (bundle / "ruler-audit-report" / "report.json").is_file(), done.stderr
    assert [mark.name for mark in marks.iterdir()] == []
    named = f"ruler: will execute {bundle / 'mine.py'}, which models.factory names\n"
    assert done.stderr == (named if kind == "code of its own" else "")


def test_the_traps_would_leave_their_marks(tmp_path):
    left = import_traps(tmp_path)
    assert {"regex", "tqdm", "conftest", "flash_attn", "package", "pth", "sitecustomize"} <= left
    assert ("so" in left) == (shutil.which("cc") is not None)


def test_a_file_that_shrinks_while_it_is_audited_is_named(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "model").mkdir()
    for side, n in SIZES.items():
        np.save(tmp_path / "model" / f"{side}.npy", rng.normal(size=(n, 1000)))
    code = (
        "import os, numpy, ruler\n"
        "class Groups:\n"
        "    def __array__(self, *_, **__):\n"
        "        os.truncate('model/retain.npy', 4096)\n"
        f"        return numpy.arange({SIZES['forget']})\n"
        "ruler.audit('model', groups=Groups())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    line = "ruler: model/retain.npy must stay as it is while it is audited; it became shorter, or its disk failed."
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{line} Audit a copy that nothing writes to.\n"


@pytest.mark.parametrize("name", ["mine.py", "audit.toml"])
def test_code_and_configuration_are_pinned_too(tmp_path, name, monkeypatch):
    from ruler.auditing.request import audit_config
    from ruler.core.errors import FileFormatError
    from ruler.core.files import hash_file

    text, folder = write_project(tmp_path)
    (tmp_path / "audit.toml").write_text(text + "[settings]\nn_permutations = 99\n")
    code = (tmp_path / "mine.py").read_text()
    lines = ["def build():", "    import os, pathlib", "    if 'TOUCH' in os.environ:"]
    touch = "\n".join([*lines, f"        pathlib.Path({str(tmp_path / name)!r}).touch()\n"])
    (tmp_path / "mine.py").write_text(code.replace("def build():\n", touch))
    audit_config(tmp_path / "audit.toml").save(tmp_path / "report")
    inputs = json.loads((tmp_path / "report" / "manifest.json").read_text())["content"]["inputs"]
    expected = {"config": hash_file(tmp_path / "audit.toml"), "code": hash_file(tmp_path / "mine.py")}
    assert {key: inputs[key] for key in expected} == expected
    monkeypatch.setenv("TOUCH", "1")
    with pytest.raises(FileFormatError, match=f"{name} must stay as it is while it is audited; it was written to"):
        audit_config(folder / "audit.toml")


@pytest.mark.parametrize("by", ["options", "file", "python"])
def test_a_file_that_changes_meanwhile_is_named_and_hashes_are_of_what_was_measured(tmp_path, by, monkeypatch):
    from typer.testing import CliRunner

    import ruler
    from ruler.cli.app import make_app
    from ruler.core.errors import FileFormatError
    from ruler.core.files import hash_file

    text, model = write_embeddings(tmp_path)
    (tmp_path / "audit.toml").write_text(text)

    def run(out):
        if by == "python":
            return ruler.audit(str(model), settings=ruler.AuditSettings(n_permutations=99))
        named = ["--unlearned", str(model)] if by == "options" else [str(tmp_path / "audit.toml")]
        found = CliRunner().invoke(make_app(), ["audit", *named, "--quiet", "--out", str(out)], catch_exceptions=False)
        assert found.exit_code in (0, 1, 3)
        return ruler.Report.load(out)

    expected = {"unlearned": {f"{side}.npy": hash_file(model / f"{side}.npy") for side in SIZES}}
    expected |= {"config": hash_file(tmp_path / "audit.toml")} if by == "file" else {}
    assert run(tmp_path / "sound").provenance["inputs"] == expected
    auditing = importlib.import_module("ruler.auditing.audit" if by == "python" else "ruler.auditing.request")
    measure = auditing.audit_evidence

    def change_and_measure(*evidence, **known):
        np.save(model / "retain.npy", np.random.default_rng(1).normal(size=(90, 8)))
        return measure(*evidence, **known)

    monkeypatch.setattr(auditing, "audit_evidence", change_and_measure)
    with pytest.raises(FileFormatError, match=r"retain\.npy must stay as it is while it is audited; it was written to"):
        run(tmp_path / "changed")
    assert not (tmp_path / "changed").exists()
