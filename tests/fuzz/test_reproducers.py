"""Every hostile file that was found once: one line, exit 2, under 2 s and 500 MB beyond the start of the command."""

import json
import subprocess
import sys
import unicodedata

import pytest
from tests.fuzz.reproducers import REPRODUCERS

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.reproducers", str(tmp_path_factory.mktemp("hostile"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", REPRODUCERS)
def test_hostile_files_end_in_one_line(outcomes, name):
    found = outcomes[name]
    lines = [line for line in found["stderr"].splitlines() if not line.startswith("ruler: will execute ")]
    assert (found["status"], len(lines), found["stdout"]) == (2, 1, ""), found
    assert " must " in lines[0]
    assert "fit into memory" not in lines[0]  # or only the limit of this test would have stopped it
    assert found["cpu_s"] < 2
    assert found["more_bytes"] < 500e6
    assert not [one for one in lines[0] if unicodedata.category(one) in ("Cc", "Cf")]
