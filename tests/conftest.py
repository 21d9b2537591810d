"""What tests of several rooms share."""

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# Everyone runs the same cases by default, so that a change is judged by its own faults; `make slow` looks for new ones.
hypothesis.settings.register_profile("steady", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Threads that spin while they wait for each other take the cores from other tests. Torch reads it when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# A million objects live as long as the session: looking through all of them for garbage every second is in vain.
gc.set_threshold(100_000, 20, 100)


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


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny models wait for each other's threads longer than they compute."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_config():
    """A BERT of a few thousand weights."""
    transformers = pytest.importorskip("transformers")
    return transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )


@pytest.fixture
def bert_folder(tmp_path: Path, tiny_config) -> Path:
    """A tiny masked language model with a trained head, as far as a file can tell."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from ruler.core.readers.pretrained import quiet_transformers

    torch.manual_seed(0)
    with quiet_transformers():
        transformers.BertForMaskedLM(tiny_config).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def pytest_collection_finish() -> None:
    """What is loaded stays: `gc.collect`, which some libraries call, need not look through it every time."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
