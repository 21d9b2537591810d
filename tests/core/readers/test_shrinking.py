"""A mapped file that shrinks is named before the process ends; outside of the context nothing is changed."""

import signal
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="needs a system with SIGBUS")

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


@pytest.mark.parametrize("how", ["main", "thread"])
def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path, how):
    done = run(tmp_path, how)
    line = "ruler: forget\\u{1b}.npy must stay as it is while it is audited; it became shorter, or its disk failed."
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{line} Audit a copy that nothing writes to.\n"


def test_afterwards_the_signal_does_what_it_did_before(tmp_path):
    done = run(tmp_path, "after")
    assert (done.returncode, done.stderr) == (-signal.SIGBUS, "")
