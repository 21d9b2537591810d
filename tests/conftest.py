"""What tests of several rooms share."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# Everyone runs the same cases by default, so that a change is judged by its own faults; `make slow` looks for new ones.
hypothesis.settings.register_profile("steady", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(20260101)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = os.environ.get("RULER_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the real data sets: set RULER_DATA to their folder")
    return Path(folder)


@pytest.fixture
def run_python() -> Callable[[str], str]:
    """Run a line in a fresh interpreter and return what it prints."""

    def run(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
