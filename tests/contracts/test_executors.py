"""Every executor keeps the contract, and a study of a user's own method and dataset runs like ours."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ruler.experiment.cell import Workplace
from ruler.experiment.executors import EXECUTORS, LocalExecutor, RayExecutor
from ruler.experiment.executors import ray as ray_module
from ruler.experiment.grid import Job
from ruler.experiment.store import ResultStore, load_results
from ruler.testing.executors import InProcessExecutor, check_executor

PLUGIN = """
from ruler.data import TabularSet, load_tabular
from ruler.training.steps import cross_entropy
from ruler.unlearning import Method, UnlearningSettings

HALF_ASCENT = Method(
    title="Half Ascent",
    settings=UnlearningSettings,
    reads=("forget",),
    make_objective=lambda original, settings: lambda student, forget: -0.5 * cross_entropy(student, forget),
)
CLINIC = TabularSet(
    key="clinic", title="Our clinic", n_rows=569, n_features=30, read=lambda: load_tabular("breast_cancer")
)
"""
STUDY = """
[[study]]
name = "own"
datasets = ["clinic"]
methods = ["half_ascent", "scrub"]
forget_fractions = [0.05]
seeds = [0]
"""
SCRIPT = """
import sys
from contextlib import suppress
from pathlib import Path
from ruler.cli import main
study, out = sys.argv[1:]
sys.argv = ["ruler", "reproduce", study, "--jobs", "1", "--out", out]
with suppress(SystemExit):
    main()
from ruler.data import DATASETS
from ruler.experiment.run import RunSettings, run_studies
from ruler.experiment.studies import STUDIES, choose_studies
from ruler.unlearning import METHODS
print(list(DATASETS), list(METHODS))
print(list(STUDIES.values()))
print(run_studies(choose_studies(study), RunSettings(Path(out))).n_new, "new")
"""


class Ray:
    """Stands in for a connected Ray: a task is a generator of this process."""

    exceptions = SimpleNamespace(RayError=RuntimeError, NodeDiedError=RuntimeError, RayTaskError=RuntimeError)

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0}}]

    def put(self, value: Any) -> Any:
        return value

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=function))

    def wait(self, streams: Sequence[Any], timeout: float) -> tuple[Sequence[Any], Sequence[Any]]:
        return streams[:1], streams[1:]

    def get(self, value: Any) -> Any:
        return value


def test_this_process_keeps_the_contract(tmp_path: Path) -> None:
    check_executor(InProcessExecutor(), tmp_path)


def test_processes_of_this_machine_keep_the_contract(tmp_path: Path) -> None:
    check_executor(LocalExecutor(2), tmp_path)


def test_ray_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_module, "connect", lambda n_cpus: nullcontext(Ray()))
    monkeypatch.setattr(ray_module, "load_optional", lambda name, needed_for: Ray())
    check_executor(RayExecutor(1), tmp_path)


@pytest.mark.cluster
def test_a_ray_cluster_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="needs ray: pip install 'ruler-audit[cluster]'")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    check_executor(RayExecutor(1), tmp_path)


class Careless(InProcessExecutor):
    """Forgets one cell of each job."""

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        super().run([Job(job.cells[1:]) for job in jobs], workplace, store, on_tick=on_tick)


def test_an_executor_that_loses_a_cell_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="each cell must have a row"):
        check_executor(Careless(), tmp_path)


def test_executors_of_other_packages_are_chosen_by_name() -> None:
    assert set(EXECUTORS) >= {"local", "ray"}
    assert EXECUTORS["local"](n_jobs=3) == LocalExecutor(3)


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds a scratch distribution with a method and a dataset."""
    (tmp_path / "clinic.py").write_text(PLUGIN)
    info = tmp_path / "clinic-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: clinic\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ruler.methods]\nhalf_ascent = clinic:HALF_ASCENT\n[ruler.datasets]\nclinic = clinic:CLINIC\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    return os.environ | {"PYTHONPATH": path, "RULER_CACHE": str(tmp_path / "cache")}


def test_a_study_file_names_a_method_and_a_dataset_of_another_package(tmp_path: Path, package: dict[str, str]) -> None:
    (tmp_path / "own.toml").write_text(STUDY)
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "own.toml"), str(tmp_path / "out")]
    done = subprocess.run(command, env=package, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 cells, 2 new" in done.stdout
    rows = load_results(tmp_path / "out").set_index("method")
    assert set(rows.dataset) == {"clinic"}
    assert rows.m1["half_ascent"] != rows.m1["scrub"]
    assert 0 < rows.m4["half_ascent"] <= 1
    found, studies, n_new = done.stdout.splitlines()[-3:]
    assert n_new == "0 new"  # resumes
    for name in ("'clinic'", "'half_ascent'"):
        assert name in found
        assert name not in studies  # nothing joins the paper's studies by itself
