"""A results file that is locked, corrupt or foreign: one line, and the file is left as it was."""

import sqlite3
from pathlib import Path

import pytest
from tests.faults.ruler_process import STUDY, run_ruler

from ruler.core.errors import FileFormatError, WriteError
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import list_cells
from ruler.experiment.rows import Provenance
from ruler.experiment.store import ResultStore
from ruler.experiment.studies import STUDIES

CELLS = list_cells(STUDIES["primary"])[:200]
MADE_BY = Provenance(device="cpu", ruler_version="0", commit=None, torch_version="2", machine="this")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A results file of many pages."""
    with ResultStore(tmp_path / "results.sqlite") as store:
        for cell in CELLS:
            store.add(Outcome(cell, {"n_forget": 12, "m4": 0.5}, 1.5), MADE_BY)
    return tmp_path / "results.sqlite"


def test_a_file_that_another_program_locks_is_waited_for_and_then_named(path: Path) -> None:
    store = ResultStore(path, patience_s=0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(WriteError, match=r"must be free to be written; got: another program .* locked for 0\.1 s"):
        store.add(Outcome(list_cells(STUDIES["minibatch"])[0], {"n_forget": 1}, 1.0), MADE_BY)
    other.execute("ROLLBACK")
    other.close()
    assert len(store.list_finished()) == len(CELLS)
    store.close()


def test_a_file_that_is_locked_whole_cannot_be_opened(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(WriteError, match="must be free to be written"):
        ResultStore(path, patience_s=0.1)
    other.close()


def test_a_damaged_page_is_said_when_it_is_read(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8192 : len(content) - 4096] = b"\xff" * (len(content) - 4096 - 8192)
    path.write_bytes(content)
    with (
        pytest.raises(FileFormatError, match="must be a results file of this version; got database disk image"),
        ResultStore(path) as store,
    ):
        store.list_rows()
    assert path.read_bytes() == content


def test_a_study_refuses_a_file_that_was_cut_short_in_one_line(path: Path, tmp_path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])
    before = path.read_bytes()
    done = run_ruler(*STUDY, "--seeds", "1", "--out", tmp_path, cache=tmp_path / "cache")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "results.sqlite must be a results file of this version; got" in done.stderr
    assert path.read_bytes() == before
