"""`ruler reproduce --executor ray` on several nodes: the local run's rows, whoever dies on the way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.cluster.machines import Machines, list_children

from ruler.experiment.executors.local import MOST_DEATHS
from ruler.experiment.run import RESULTS_FILE, RunSettings, run_studies
from ruler.experiment.settings import StudySettings, format_studies
from ruler.experiment.store import ResultStore, load_results
from ruler.experiment.studies import choose_studies, choose_variant, narrow_studies
from ruler.testing.executors import InProcessExecutor

pytestmark = pytest.mark.cluster

PROVENANCE = ["elapsed_s", "ruler_version", "commit", "torch_version", "machine", "finished_at"]
SMALL = StudySettings("primary", ("heart_disease",), ("gradient_ascent", "scrub"), (0.05,), (0, 1, 2))
N_SMALL = 3 * 2
(LONGER,) = choose_variant(
    narrow_studies(
        choose_studies("primary"), datasets=("breast_cancer", "heart_disease"), n_seeds=2, forget_fractions=(0.05,)
    ),
    engine="protocol",
    device="cpu",
    is_imported=False,
)
N_LONGER = 2 * 2 * 6
POISONED = StudySettings("poisoned", ("breast_cancer",), ("gradient_ascent", "scrub"), (0.05,), (0, 1, 2))
COMMAND = [
    *(sys.executable, "-c", "from ruler.cli import main; main()", "reproduce", "primary", "--executor", "ray"),
    *("--datasets", "heart_disease", "--seeds", "2", "--forget-fractions", "0.05", "--engine", "protocol", "--out"),
]
COORDINATOR = """
import sys
from pathlib import Path
from ruler.experiment.executors import RayExecutor
from ruler.experiment.run import RunSettings, run_studies
from ruler.experiment.settings import read_studies
done = run_studies(read_studies(Path(sys.argv[1])), RunSettings(out=Path(sys.argv[2]), executor=RayExecutor()))
print(f"{done.n_done} of {done.n_cells} cells, {done.n_new} new")
"""
PATIENCE_S = 240  # hangs are found, and other work on the machine is not


def list_descendants(pid: int) -> list[int]:
    return [found for child in list_children(pid) for found in (child, *list_descendants(child))]


def wait_until(is_so: Callable[[], bool], what: str, process: "subprocess.Popen[str] | None" = None) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert process is None or process.poll() is None, finish(process)
        assert time.monotonic() < deadline_s, f"waited too long: {what}"
        time.sleep(0.02)


def count_rows(folder: Path) -> int:
    if not (folder / RESULTS_FILE).is_file():
        return 0
    with ResultStore(folder / RESULTS_FILE) as store:
        return len(store.list_finished())


def values_of(folder: Path) -> pd.DataFrame:
    return load_results(folder).drop(columns=PROVENANCE)


def start(environment: dict[str, str], command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )


def coordinate(out: Path, study: StudySettings) -> list[str]:
    """What the command does before it writes tables and figures, which takes as long again."""
    (out / "wanted.toml").write_text(format_studies([study]))
    return [sys.executable, "-c", COORDINATOR, str(out / "wanted.toml"), str(out)]


def finish(process: "subprocess.Popen[str]") -> str:
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    return said


def run_here(study: StudySettings, folder: Path) -> pd.DataFrame:
    run_studies([study], RunSettings(folder, InProcessExecutor(), models=folder / "models"))
    return values_of(folder)


@pytest.fixture(scope="module")
def longer_values(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> pd.DataFrame:
    return run_here(LONGER, tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize("engine", [pytest.param("protocol", marks=pytest.mark.slow), "ensemble"])
def test_three_nodes_give_the_rows_of_a_local_run(
    machines: Machines, data_folder: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, engine: Any
) -> None:
    study = replace(SMALL, engine=engine)
    said = finish(start(machines.environment, coordinate(tmp_path, study)))
    assert f"{N_SMALL} of {N_SMALL} cells, {N_SMALL} new" in said
    expected = run_here(study, tmp_path_factory.mktemp("here"))
    pd.testing.assert_frame_equal(values_of(tmp_path), expected, check_exact=True)
    caches = sorted(machines.folder.glob("node-*"))
    assert len(caches) == 3, "each node does a job, and keeps the models in its own cache"
    assert all((cache / "tabular" / "heart_disease.csv.gz").is_file() for cache in caches), "the data was sent there"


@pytest.mark.slow  # tests/experiment/executors/test_ray.py has it with a stand-in for Ray
def test_a_lost_node_is_made_up_for_by_those_that_stay_or_join(
    machines: Machines, longer_values: pd.DataFrame, tmp_path: Path
) -> None:
    machines.forget_models()
    process = start(machines.environment, coordinate(tmp_path, LONGER))
    lost = machines.nodes[-1]  # not the head, which holds the cluster together
    wait_until(lambda: bool(machines.list_workers(lost)) and count_rows(tmp_path) > 0, "a job on the node", process)
    machines.kill(lost)
    assert count_rows(tmp_path) < N_LONGER
    machines.nodes.append(machines.add())
    assert f"{N_LONGER} of {N_LONGER} cells, {N_LONGER} new" in finish(process)
    pd.testing.assert_frame_equal(values_of(tmp_path), longer_values, check_exact=True)


@pytest.mark.slow  # tests/experiment/executors/test_ray.py has it with a stand-in for Ray
def test_the_same_command_takes_up_what_a_dead_driver_left(
    machines: Machines, longer_values: pd.DataFrame, tmp_path: Path
) -> None:
    machines.forget_models()
    process = start(machines.environment, coordinate(tmp_path, LONGER))
    wait_until(lambda: count_rows(tmp_path) > 2, "some rows", process)
    process.kill()
    process.communicate()
    n_kept = count_rows(tmp_path)
    assert 2 < n_kept < N_LONGER
    wait_until(lambda: not any(map(machines.list_workers, machines.nodes)), "the end of the dead driver's workers")
    assert count_rows(tmp_path) == n_kept
    said = finish(start(machines.environment, coordinate(tmp_path, LONGER)))
    assert f"{N_LONGER} of {N_LONGER} cells, {N_LONGER - n_kept} new" in said
    pd.testing.assert_frame_equal(values_of(tmp_path), longer_values, check_exact=True)


@pytest.mark.slow  # tests/experiment/executors/test_ray.py has it with a stand-in for Ray
def test_a_job_that_kills_its_workers_is_recorded_and_the_others_are_done(machines: Machines, tmp_path: Path) -> None:
    process = start(machines.environment, coordinate(tmp_path, POISONED))
    killed = set[int]()
    while process.poll() is None:
        for pid, title in (item for node in machines.nodes for item in machines.list_workers(node).items()):
            if title.endswith("poisoned breast_cancer seed 1") and pid not in killed:
                with suppress(ProcessLookupError):  # it has ended since it was listed
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
        time.sleep(0.01)
    finish(process)
    assert len(killed) == MOST_DEATHS + 1
    assert set(load_results(tmp_path).seed) == {0, 2}
    assert len(load_results(tmp_path)) == 4
    with ResultStore(tmp_path / RESULTS_FILE) as store:
        first, second = store.list_failures().values()
    assert first.startswith(f"WorkerDied: {MOST_DEATHS} worker processes died over this cell")
    assert second.startswith(f"WorkerDied: {MOST_DEATHS + 1} worker processes died over this cell")


@pytest.mark.slow  # tests/core/test_cluster.py leaves a cluster of its own, tests/cli/test_reproduce.py stops by Ctrl-C
def test_ctrl_c_stops_a_cluster_of_our_own(data_folder: Path, tmp_path: Path) -> None:
    alone = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    process = start(alone | {"RULER_CACHE": str(tmp_path / "cache")}, [*COMMAND, str(tmp_path / "out")])
    wait_until(lambda: count_rows(tmp_path / "out") > 0, "a row", process)
    started = list_descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)  # a terminal's Ctrl-C reaches the whole group
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert "run the same command again to resume" in said
    assert "Traceback" not in said
    assert started
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), "the end of Ray's processes")
