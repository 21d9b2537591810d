"""Checkpoints and functions that a configuration names: weights are read, one named file is executed, nothing else."""

import sys
import zipfile

import pytest

from ruler.core.errors import CheckpointError, FileFormatError, InputError
from ruler.embeddings.bundle.checkpoints import find_factory, load_checkpoint

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("wrap", [lambda s: s, lambda s: {"state_dict": s}, lambda s: {"model": s, "epoch": 3}])
def test_checkpoints_of_every_kind_are_read(tmp_path, wrap):
    trained = torch.nn.Linear(2, 2)
    torch.save(wrap(trained.state_dict()), tmp_path / "a.pth")
    found = load_checkpoint(lambda: torch.nn.Linear(2, 2), tmp_path / "a.pth", "oracle")
    assert torch.equal(found.weight, trained.weight)


def test_safetensors_checkpoints_are_read(tmp_path):
    from safetensors.torch import save_file

    trained = torch.nn.Linear(2, 2)
    save_file(trained.state_dict(), tmp_path / "a.safetensors")
    found = load_checkpoint(lambda: torch.nn.Linear(2, 2), tmp_path / "a.safetensors", "oracle")
    assert torch.equal(found.weight, trained.weight)


def test_bad_checkpoints_are_refused(tmp_path):
    def build():
        return torch.nn.Linear(2, 2)

    torch.save(torch.ones(3), tmp_path / "a.pt")
    with pytest.raises(FileFormatError, match="must hold a state dict; got Tensor"):
        load_checkpoint(build, tmp_path / "a.pt", "oracle")
    torch.save({"weight": 3}, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match="must hold the weights of the oracle model"):
        load_checkpoint(build, tmp_path / "a.pt", "oracle")
    (tmp_path / "a.bin").write_bytes(b"")
    with pytest.raises(FileFormatError, match=r"must end in \.safetensors"):
        load_checkpoint(build, tmp_path / "a.bin", "oracle")
    (tmp_path / "a.safetensors").write_bytes(b"123")
    with pytest.raises(FileFormatError, match=r"must be a sound \.safetensors file"):
        load_checkpoint(build, tmp_path / "a.safetensors", "oracle")
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(64 << 20))
    with pytest.raises(FileFormatError, match="must not unfold"):
        load_checkpoint(build, tmp_path / "bomb.pt", "oracle")


def write_module(folder, text, name="mine"):
    (folder / f"{name}.py").write_text(text)
    return folder


def test_one_named_file_is_executed_once_and_said_beforehand(tmp_path, capsys):
    write_module(tmp_path, "print('it runs')\ndef build():\n    return 3\ndef load():\n    return 4\n")
    before = list(sys.path), set(sys.modules)
    build = find_factory("mine:build", "models.factory", tmp_path)
    captured = capsys.readouterr()
    assert captured.err == f"ruler: will execute {tmp_path / 'mine.py'}, which models.factory names\n"
    assert captured.out == "it runs\n"
    assert (build(), find_factory("mine:load", "data.factory", tmp_path)()) == (3, 4)
    assert "it runs" not in capsys.readouterr().out
    assert sys.path == before[0]
    assert "mine" not in sys.modules
    assert not (tmp_path / "__pycache__").exists()


def test_dataclasses_of_a_named_file_work(tmp_path):
    text = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 3\n"
    )
    assert find_factory("mine:A", "models.factory", write_module(tmp_path, text))().x == 3


def test_the_source_counts_not_what_was_compiled_of_it(tmp_path):
    import py_compile

    write_module(tmp_path, "def build():\n    return 'trap'\n")
    py_compile.compile(str(tmp_path / "mine.py"), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert list((tmp_path / "__pycache__").iterdir())
    write_module(tmp_path, "def build():\n    return 'read'\n")
    assert find_factory("mine:build", "models.factory", tmp_path)() == "read"


@pytest.mark.parametrize("how", ["import helper", "from . import helper", "import package.part"])
def test_other_files_beside_it_are_not_imported(tmp_path, how):
    write_module(tmp_path, "raise SystemExit('it ran')\n", "helper")
    (tmp_path / "package").mkdir()
    write_module(tmp_path / "package", "raise SystemExit('it ran')\n", "part")
    write_module(tmp_path, f"{how}\ndef build():\n    pass\n")
    with pytest.raises(InputError, match=r"models\.factory 'mine:build' must name a module to import; got \w*Error"):
        find_factory("mine:build", "models.factory", tmp_path)
    with pytest.raises(InputError, match=r"Other files beside the configuration are not imported: install them"):
        find_factory("package.part:build", "models.factory", tmp_path)


def test_a_file_that_fails_is_tried_anew(tmp_path):
    write_module(tmp_path, "raise ValueError('not yet')\n")
    with pytest.raises(InputError, match="got ValueError: not yet"):
        find_factory("mine:build", "models.factory", tmp_path)
    assert find_factory("mine:build", "models.factory", write_module(tmp_path, "def build():\n    return 3\n"))() == 3


def test_installed_modules_are_imported(tmp_path, capsys):
    assert find_factory("collections:OrderedDict", "models.factory", tmp_path)() == {}
    assert capsys.readouterr().err == "ruler: will execute collections, which models.factory names\n"
    with pytest.raises(InputError, match=r"models\.factory 'no_such:build' must name a module to import"):
        find_factory("no_such:build", "models.factory", tmp_path)
