"""Jobs -> rows, kept in one file per part as they come, so that an interrupted run goes on where it stopped."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from calibration.world import Row, World, judge

Job = tuple[Callable[..., Any], tuple[Any, ...]]
_WHOLE = "all worlds were made"
_AHEAD = 40  # worlds that wait for a worker at most; each holds some megabytes


def open_pool(n_processes: int) -> ProcessPoolExecutor:
    """Workers with one thread each, which see no GPU."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    kept = {name: os.environ.get(name) for name in (*limits, "CUDA_VISIBLE_DEVICES")}
    os.environ.update(limits | {"CUDA_VISIBLE_DEVICES": ""})
    try:
        pool = ProcessPoolExecutor(n_processes, mp_context=get_context("spawn"), initializer=_set_one_thread)
        for future in [pool.submit(time.sleep, 0.05) for _ in range(n_processes)]:
            future.result()  # all workers have started with these variables
    finally:
        for name, value in kept.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    return pool


def _set_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def read_rows(path: Path) -> dict[str, list[Row]]:
    """Finished jobs of a part and their rows; a line that was cut off counts as not there."""
    found: dict[str, list[Row]] = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                kept = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[kept["job"]] = kept["rows"]
    return found


def run_jobs(part: str, jobs: Mapping[str, Job], path: Path, pool: ProcessPoolExecutor) -> list[Row]:
    """Rows of every job; those that the file does not hold yet are made by the workers."""
    done = read_rows(path)
    todo = {key: job for key, job in jobs.items() if key not in done}
    if todo:
        progress = _Progress(part, len(todo))
        with path.open("a") as file:
            futures = {pool.submit(run_job, part, *job): key for key, job in todo.items()}
            _collect(futures, done, file, progress)
    return [row for key in jobs for row in done[key]]


def run_worlds(part: str, worlds: Callable[[], Iterable[World]], path: Path, pool: ProcessPoolExecutor) -> list[Row]:
    """Rows of worlds that this process makes, on a GPU say, and the workers audit."""
    done = read_rows(path)
    if _WHOLE not in done:
        progress = _Progress(part, None)
        with path.open("a") as file:
            futures: dict[Future[list[Row]], str] = {}
            for world in worlds():
                key = f"{world.dataset} {world.kind} {world.seed}"
                if key in done:
                    continue
                futures[pool.submit(judge_world, part, world)] = key
                while len(futures) > _AHEAD or any(future.done() for future in futures):
                    _collect(futures, done, file, progress, n_most=1)
            _collect(futures, done, file, progress)
            _keep(file, _WHOLE, [])
    return [row for rows in done.values() for row in rows]


def run_job(part: str, make: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Row]:
    """The rows of one job: worlds are audited, rows are kept as they are."""
    found: list[Row] = []
    for one in make(*arguments):
        found += list(judge(one, part)) if isinstance(one, World) else [{"part": part, **one}]
    return found


def judge_world(part: str, world: World) -> list[Row]:
    """The rows of one world."""
    return list(judge(world, part))


def _collect(
    futures: dict[Future[list[Row]], str],
    done: dict[str, list[Row]],
    file: Any,
    progress: "_Progress",
    n_most: int | None = None,
) -> None:
    """Wait for all results, or for some, and keep them; each is taken out of ``futures``."""
    n_taken = 0
    while futures and (n_most is None or n_taken < n_most):
        for future in wait(futures, return_when=FIRST_COMPLETED).done:
            key = futures.pop(future)
            done[key] = future.result()
            _keep(file, key, done[key])
            progress.advance(done[key])
            n_taken += 1


def _keep(file: Any, key: str, rows: list[Row]) -> None:
    file.write(json.dumps({"job": key, "rows": rows}) + "\n")
    file.flush()


class _Progress:
    """A line now and then: how many jobs and audits are done, and how long they took."""

    def __init__(self, part: str, n_jobs: int | None) -> None:
        self._part, self._n_jobs = part, n_jobs
        self._n_done, self._n_rows, self._n_errors = 0, 0, 0
        self._started = self._told = time.monotonic()

    def advance(self, rows: list[Row]) -> None:
        self._n_done += 1
        self._n_rows += len(rows)
        for row in rows:
            if "error" in row and self._n_errors < 3:
                print(f"{self._part}: {row.get('set')}, {row.get('kind')}: {row['error']}", flush=True)
            self._n_errors += "error" in row
        now = time.monotonic()
        if now - self._told >= 15 or self._n_done == self._n_jobs:
            self._told = now
            of = "" if self._n_jobs is None else f" of {self._n_jobs}"
            errors = f", {self._n_errors} errors" if self._n_errors else ""
            elapsed = now - self._started
            print(f"{self._part}: {self._n_done}{of} jobs, {self._n_rows} rows{errors}, {elapsed:.0f} s", flush=True)
