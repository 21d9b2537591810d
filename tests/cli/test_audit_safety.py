"""A bundle from a stranger: what lies in it is read, and nothing in it runs but a file that its TOML names."""

import importlib
import json
import shutil
import subprocess
import sys
import sysconfig

import numpy as np
import pytest

from ruler.core.readers.pretrained import quiet_transformers

LABORATORY = ("data", "experiment", "models", "paper", "training", "unlearning")
SIZES = {"forget": 30, "retain": 90, "held_out": 60}


def test_the_verb_loads_nothing_of_the_laboratory(run_python):
    code = "import sys, ruler.cli.audit; print(*sorted(name for name in sys.modules if name.startswith('ruler.')))"
    loaded = run_python(code).split()
    assert "ruler.cli.audit" in loaded
    assert [name for name in loaded if name.split(".")[1] in LABORATORY] == []


def set_traps(folder, marks):
    """Files that Python, pytest or a package would run if the folder were on its path; each leaves a mark."""

    def code(name):
        return f"from pathlib import Path\nPath({str(marks / name)!r}).touch()\n"

    for name in ("regex", "tqdm", "sitecustomize", "usercustomize", "conftest", "numpy", "helper"):
        (folder / f"{name}.py").write_text(code(name))
    (folder / "trap.pth").write_text(f"import pathlib; pathlib.Path({str(marks / 'pth')!r}).touch()\n")
    for name in ("flash_attn", "modeling_trap"):  # the first is one that transformers looks for
        (folder / name).mkdir()
        (folder / name / "part.py").write_text(code(name))
    (folder / "modeling_trap" / "__init__.py").write_text(code("package"))
    library = folder / f"sentencepiece{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = shutil.which("cc")
    if compiler is None:
        library.write_bytes(b"no library: importing it would end the run")
    else:
        source = f'#include <fcntl.h>\n__attribute__((constructor)) void run(void) {{ creat("{marks / "so"}", 0600); }}'
        subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source.encode(), check=True)


def write_embeddings(folder):
    rng = np.random.default_rng(0)
    (folder / "model").mkdir()
    for side, n in SIZES.items():
        np.save(folder / "model" / f"{side}.npy", rng.normal(size=(n, 8)))
    return '[embeddings]\nunlearned = "model"\n', folder / "model"


def write_transformer(folder):
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fever", "cough", "pain", "rash"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = transformers.BertConfig(vocab_size=len(words), initializer_range=0.5, **sizes)
    with quiet_transformers():
        transformers.BertForSequenceClassification(config).save_pretrained(folder / "model")
    (folder / "model" / "vocab.txt").write_text("\n".join(words))
    rng = np.random.default_rng(0)
    for side, n in SIZES.items():
        lines = [" ".join(rng.choice(words[5:], 6)) for _ in range(n)]
        (folder / f"{side}.csv").write_text("\n".join(["text", *lines]))
    sides = "\n".join(f'{side} = "{side}.csv"' for side in SIZES)
    return f'[models]\nunlearned = "model"\n[data]\n{sides}\n', folder / "model"


def write_project(folder):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    (folder / "mine.py").write_text(
        "import tqdm, torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))\n"
    )
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    torch.save(net.state_dict(), folder / "model.pt")
    for side, n in SIZES.items():
        np.save(folder / f"{side}.npy", rng.normal(size=(n, 6)).astype("float32"))
    sides = "\n".join(f'{side} = "{side}.npy"' for side in SIZES)
    return f'[models]\nfactory = "mine:build"\nunlearned = "model.pt"\n[data]\n{sides}\n', folder


@pytest.mark.parametrize("write", [write_embeddings, write_transformer, write_project])
def test_nothing_that_lies_in_a_bundle_runs(tmp_path, write):
    bundle, marks = tmp_path / "bundle", tmp_path / "marks"
    bundle.mkdir()
    marks.mkdir()
    tables, model = write(bundle)
    (bundle / "audit.toml").write_text(tables + "[settings]\nn_permutations = 99\n")
    for folder in {bundle, model}:
        set_traps(folder, marks)
    # -P: as the installed command, Python does not look for modules where the user happens to be
    command = [sys.executable, "-P", "-c", "import ruler.cli; ruler.cli.main()", "audit", "audit.toml", "--quiet"]
    done = subprocess.run(command, cwd=bundle, capture_output=True, text=True, check=False)
    assert (bundle / "ruler-audit-report" / "report.json").is_file(), done.stderr
    assert [mark.name for mark in marks.iterdir()] == []
    named = f"ruler: will execute {bundle / 'mine.py'}, which models.factory names\n"
    assert done.stderr == (named if write is write_project else "")


def test_the_traps_would_leave_their_marks(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    set_traps(tmp_path, marks)
    modules = "site, regex, tqdm, conftest, flash_attn.part, modeling_trap"
    code = f"import {modules}; site.addsitedir('.'); import sentencepiece"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    left = {mark.name for mark in marks.iterdir()}
    assert {"regex", "tqdm", "conftest", "flash_attn", "package", "pth"} <= left
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
    from ruler.cli.app import app
    from ruler.core.errors import FileFormatError
    from ruler.core.files import hash_file

    text, model = write_embeddings(tmp_path)
    (tmp_path / "audit.toml").write_text(text)

    def run(out):
        if by == "python":
            return ruler.audit(str(model), settings=ruler.AuditSettings(n_permutations=99))
        named = ["--unlearned", str(model)] if by == "options" else [str(tmp_path / "audit.toml")]
        found = CliRunner().invoke(app, ["audit", *named, "--quiet", "--out", str(out)], catch_exceptions=False)
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
