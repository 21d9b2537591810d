"""Files that change while they are measured, in whatever way, are named."""

import hashlib
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from ruler.core.errors import FileFormatError
from ruler.core.readers.pins import PinnedInputs


@pytest.fixture
def folder(tmp_path):
    for name in ("forget.npy", "retain/a.npy", "retain/b.npy", "notes.log", ".hidden.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_every_file_that_is_read_is_described(folder):
    pins = PinnedInputs({"unlearned": folder, "groups": folder / "notes.log", "oracle": [folder / "retain"] * 2})
    inner = {name: digest(f"retain/{name}") for name in ("a.npy", "b.npy")}
    outer = {"forget.npy": digest("forget.npy"), **{f"retain/{name}": one for name, one in inner.items()}}
    described = {"unlearned": outer, "groups": digest("notes.log"), "oracle": inner, "oracle 2": inner}
    assert pins.describe() == described
    pins.check()
    (folder / "notes.log").touch()
    with pytest.raises(FileFormatError, match=r"notes\.log must stay as it is while it is audited; it was written to"):
        pins.check()
    PinnedInputs({"unlearned": folder}).check()


def test_as_a_context_they_are_checked_at_its_end_unless_something_else_failed(folder):
    with pytest.raises(FileFormatError, match="it was written to"), PinnedInputs({"unlearned": folder}):
        (folder / "forget.npy").touch()
    pins = PinnedInputs({"unlearned": folder})
    (folder / "forget.npy").unlink()
    with pytest.raises(FileNotFoundError), pins:
        (folder / "forget.npy").stat()
    (folder / "forget.npy").touch()
    with PinnedInputs({"unlearned": folder}) as pins:
        pass
    assert len(pins.describe()["unlearned"]) == 3


def change_and_restore(path):
    found = path.stat()
    content = path.read_bytes()
    path.write_bytes(b"others")
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def replace_by_another(path):
    path.with_suffix(".new").write_bytes(path.read_bytes())
    os.replace(path.with_suffix(".new"), path)


CHANGES = {
    "grown": (lambda path: path.write_bytes(path.read_bytes() + b"x"), "it was written to"),
    "shrunk": (lambda path: os.truncate(path, 3), "it was written to"),
    "same size": (lambda path: path.write_bytes(path.read_bytes()[::-1]), "it was written to"),
    "gone": (lambda path: path.unlink(), "it is gone"),
    "restored": (change_and_restore, "it was written to"),
    "replaced": (replace_by_another, "it was written to"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_every_change_is_seen(folder, change, message):
    pins = PinnedInputs({"unlearned": folder})
    path = folder / "retain" / "b.npy"
    change(path)
    with pytest.raises(FileFormatError, match=rf"retain/b\.npy must stay as it is while it is audited; {message}"):
        pins.check()
    assert pins.find_shrunk() == ([path] if message == "it is gone" or path.stat().st_size == 3 else [])


def test_bytes_that_change_under_an_unchanged_clock_are_seen(folder, monkeypatch):
    pins = PinnedInputs({"unlearned": folder})
    found = {path: path.stat() for path in folder.rglob("*")}
    (folder / "forget.npy").write_bytes(b"FORGET.NPY")
    stat = type(folder).stat
    monkeypatch.setattr(type(folder), "stat", lambda path, **how: found.get(path) or stat(path, **how))
    with pytest.raises(FileFormatError, match=r"forget\.npy must stay as it is while it is audited; it was changed"):
        pins.check()


def test_a_folder_of_very_many_files_has_one_hash(tmp_path):
    for number in range(1001):
        (tmp_path / f"{number:04}.png").write_bytes(b"x")
    lines = "".join(f"{digest('x')}  {number:04}.png\n" for number in range(1001))
    pins = PinnedInputs({"forget": tmp_path})
    assert pins.describe() == {"forget": digest(lines)}
    (tmp_path / "0500.png").write_bytes(b"y")
    with pytest.raises(FileFormatError, match=r"0500\.png must stay as it is"):
        pins.check()


def test_links_in_a_circle_end(folder):
    (folder / "retain" / "up").symlink_to(folder)
    assert len(PinnedInputs({"unlearned": folder}).describe()["unlearned"]) == 3


def test_what_is_not_there_is_left_to_its_reader(tmp_path):
    assert PinnedInputs({"unlearned": tmp_path / "none"}).describe() == {"unlearned": {}}


needs_sigbus = pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="needs a system with SIGBUS")

CODE = """
import os, pathlib, sys, threading, numpy as np
from ruler.core.readers.pins import PinnedInputs
path, = pathlib.Path().glob("*.npy")
rows = np.load(path, mmap_mode="r")
def read():
    with PinnedInputs({"unlearned": pathlib.Path()}), PinnedInputs({"oracle": pathlib.Path("none")}):
        os.truncate(path, 1 << 20)
        rows.sum()
if sys.argv[1] == "after":
    with PinnedInputs({"unlearned": pathlib.Path()}):
        rows.sum()
    os.truncate(path, 1 << 20)
    rows.sum()
elif sys.argv[1] == "thread":
    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
else:
    read()
"""


def run(folder, how):
    np.save(folder / "forget\x1b.npy", np.ones((1 << 18, 8)))
    return subprocess.run([sys.executable, "-c", CODE, how], cwd=folder, capture_output=True, text=True, check=False)


@needs_sigbus
@pytest.mark.parametrize("how", ["main", "thread"])
def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path, how):
    done = run(tmp_path, how)
    line = "ruler: forget\\u{1b}.npy must stay as it is while it is audited; it became shorter, or its disk failed."
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{line} Audit a copy that nothing writes to.\n"


@needs_sigbus
def test_afterwards_the_signal_does_what_it_did_before(tmp_path):
    done = run(tmp_path, "after")
    assert (done.returncode, done.stderr) == (-signal.SIGBUS, "")
