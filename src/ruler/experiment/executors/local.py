"""Jobs on the cores of this machine: one process a worker, each dead worker noticed and replaced."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ruler.core.cluster import worker_variables
from ruler.experiment.cell import Workplace
from ruler.experiment.executors.worker import MOST_DEATHS, choose_device, do_cells
from ruler.experiment.grid import Job
from ruler.experiment.provenance import tell_time
from ruler.experiment.store import Provenance, ResultStore

_TICK_S = 0.5
_GRACE_S = 5.0
_CONTEXT = multiprocessing.get_context("spawn")  # a forked torch can hang in its thread pools


@dataclass(frozen=True)
class Task:
    """What a worker needs to know beside its jobs.

    Args:
        n_threads: For other engines than the protocol, see ``do_cells``.
    """

    store: Path
    workplace: Workplace
    provenance: Provenance
    n_threads: int


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None


@dataclass(eq=False)
class _Queue:
    waiting: deque[Job]
    deaths: dict[Job, int] = field(default_factory=dict)


def run_local(
    jobs: Sequence[Job],
    task: Task,
    *,
    n_workers: int,
    on_tick: Callable[[], None] = lambda: None,
    on_given_up: Callable[[Job], None] = lambda job: None,
) -> None:
    """Do all jobs, in their order, on ``n_workers`` processes; returns when every job is done or given up.

    A worker writes its rows into the store itself. When one dies (killed, out of memory), its job is done again
    by a new one; a job that took three workers with it is handed to ``on_given_up``.

    Args:
        on_tick: Called about twice a second.
        on_given_up: Called with each job that no worker survived.
    """
    queue = _Queue(deque(jobs))
    workers: list[_Worker] = []
    try:
        while queue.waiting or any(worker.job for worker in workers):
            _hand_out(queue, workers, task, n_workers)
            for worker in _wait_for_news(workers):
                if not _is_done(worker):
                    workers.remove(worker)
                    _mourn(worker, queue, on_given_up)
            on_tick()
    finally:
        _dismiss(workers)


def _hand_out(queue: _Queue, workers: list[_Worker], task: Task, n_workers: int) -> None:
    idle = [worker for worker in workers if worker.job is None]
    while queue.waiting and (idle or len(workers) < n_workers):
        if not idle:
            workers.append(_hire(task))
            idle = [workers[-1]]
        worker = idle.pop()
        worker.job = queue.waiting.popleft()
        try:
            worker.pipe.send(worker.job)
        except OSError:  # it died while idle: the sentinel tells, and the job comes back
            continue


def _wait_for_news(workers: Sequence[_Worker]) -> list[_Worker]:
    signs = {sign: worker for worker in workers for sign in (worker.pipe, worker.process.sentinel)}
    ready = wait(list(signs), timeout=_TICK_S)
    return list({id(signs[sign]): signs[sign] for sign in ready}.values())


def _is_done(worker: _Worker) -> bool:
    """Whether the worker reported the end of its job; if not, it is dead."""
    try:
        if worker.pipe.poll():
            worker.pipe.recv()
            worker.job = None
    except (EOFError, OSError):
        return False
    return bool(worker.process.is_alive())


def _mourn(worker: _Worker, queue: _Queue, on_given_up: Callable[[Job], None]) -> None:
    worker.process.join()
    worker.pipe.close()
    if worker.job is None:
        return
    queue.deaths[worker.job] = queue.deaths.get(worker.job, 0) + 1
    if queue.deaths[worker.job] >= MOST_DEATHS:
        on_given_up(worker.job)
    else:
        queue.waiting.appendleft(worker.job)


def _hire(task: Task) -> _Worker:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(theirs, task), daemon=True)
    with _environment(task.n_threads), _holding_interrupts():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait: processes that are started meanwhile never see one, not even while they load."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # whose own start would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(n_threads: int) -> Iterator[None]:
    """Set for the processes that are started meanwhile, and then as it was."""
    wanted = worker_variables(n_threads)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _dismiss(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(_GRACE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(pipe: Connection, task: Task) -> None:
    """A worker's life: take a job, leave its rows in the store, report, until the coordinator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the coordinator decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    with ResultStore(task.store) as store:
        while True:
            try:
                job = pipe.recv()
            except (EOFError, OSError):
                return
            do_job(job, task, store)
            pipe.send(None)


def do_job(job: Job, task: Task, store: ResultStore) -> None:
    """Run a job and record every outcome as it comes."""
    provenance = replace(task.provenance, device=choose_device(job, task.provenance.device))
    for outcome in do_cells(job, task.workplace, task.n_threads):
        store.add(outcome, provenance, tell_time())


def _die_with_parent() -> None:
    """End at once when the coordinator does, however it ended: an orphan would work beside the next run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
