"""Jobs on the cores of this machine: one process per worker; a dead worker is noticed and replaced."""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from ruler.core.checks import check_number
from ruler.core.cluster import worker_variables
from ruler.core.errors import InputError, RulerError
from ruler.core.optional import load_optional
from ruler.experiment.cell import Workplace, run_job
from ruler.experiment.grid import Job
from ruler.experiment.rows import describe_process
from ruler.experiment.store import ResultStore

MOST_DEATHS = 3
"""A job that this many workers died over is given up."""

_TICK_S = 0.5
_GRACE_S = 5.0
_CONTEXT = multiprocessing.get_context("spawn")  # a forked torch can hang in its thread pools
_MOST_GPU_WORKERS = 8  # they overlap the host's work with the device's; more only share the device
_MOST_DIAGNOSTIC_WORKERS = 4
_GPU_WORKER_BYTES = 1 << 32  # a context, the chunks of an ensemble, and the models that are scored at once
_CAUSAL_WORKER_BYTES = 35 << 30  # a step of a causal language model as a graph, and one of another shape beside it


@dataclass(eq=False)
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None

    def is_alive(self) -> bool:
        """Take in a report of the end of its job; False if the worker is dead.

        Raises:
            RulerError: What kept the worker from writing, which would stop the next one too.
        """
        fault = None
        try:
            if self.pipe.poll():
                fault = self.pipe.recv()
                self.job = None
        except (EOFError, OSError):
            return False
        if fault is not None:
            raise fault
        return bool(self.process.is_alive())


@dataclass(frozen=True)
class LocalExecutor:
    """Runs jobs in processes of this machine, each of which writes its rows into the store itself.

    Args:
        n_jobs: Worker processes; None takes one per core, or up to 8 on a GPU.
    """

    n_jobs: int | None = None

    def __post_init__(self) -> None:
        if self.n_jobs is not None:
            check_number(self.n_jobs, "jobs", minimum=1, is_whole=True)

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        """Do all jobs, in their order; see `Executor`.

        When a worker dies (killed, out of memory), its job is done again by a new one. A job that three workers died
        over is recorded as failed.

        Raises:
            InputError: No CUDA device.
            WriteError: The results or the models cannot be written; finished cells have their rows.
        """
        gpu_bytes = _measure_gpu() if workplace.device == "cuda" else None
        n_cores = count_cores()
        n_workers = min(self.n_jobs or choose_workers(jobs, n_cores, gpu_bytes), len(jobs))
        waiting, n_deaths, workers = deque(jobs), Counter[Job](), list[_Worker]()
        try:
            while waiting or any(worker.job for worker in workers):
                idle = [worker for worker in workers if worker.job is None]
                while waiting and (idle or len(workers) < n_workers):
                    if not idle:
                        idle = [_start_worker(store.path, workplace, _share_threads(n_cores, n_workers))]
                        workers += idle
                    worker = idle.pop()
                    worker.job = waiting.popleft()
                    try:
                        worker.pipe.send(worker.job)
                    except OSError:  # it died while idle, which is noticed below, where its job comes back
                        continue
                signs = {sign: worker for worker in workers for sign in (worker.pipe, worker.process.sentinel)}
                for worker in {signs[sign] for sign in wait(list(signs), timeout=_TICK_S)}:
                    if worker.is_alive():
                        continue
                    workers.remove(worker)
                    worker.process.join()
                    worker.pipe.close()
                    if worker.job is not None:
                        n_deaths[worker.job] += 1
                        if n_deaths[worker.job] < MOST_DEATHS:
                            waiting.appendleft(worker.job)
                        else:
                            error = f"{MOST_DEATHS} worker processes died over this job (killed, or out of memory)"
                            store.add_failures(worker.job.cells, f"WorkerDied: {error}")
                on_tick()
        finally:
            _stop(workers)


@dataclass(frozen=True)
class InlineExecutor:
    """Runs jobs one after the other in this process, which knows what a session has registered.

    Args:
        n_jobs: Ignored; taken so that it can stand in the table of executors.
        n_threads: Of torch, which gets its own number back; None leaves them alone.
    """

    n_jobs: int | None = None
    n_threads: int | None = None

    def run(
        self, jobs: Sequence[Job], workplace: Workplace, store: ResultStore, *, on_tick: Callable[[], None]
    ) -> None:
        """Do all jobs, in their order; see `Executor`."""
        torch = load_optional("torch", "running models")
        n_threads = torch.get_num_threads()
        try:
            for job in jobs:
                made_by = describe_process(job.device_for(workplace.device))
                for outcome in run_job(job, workplace, n_threads=self.n_threads):
                    store.add(outcome, made_by)
                    on_tick()
        finally:
            torch.set_num_threads(n_threads)


def count_cores() -> int:
    """Cores that this process may use, which a container or a scheduler may have cut."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _share_threads(n_cores: int, n_workers: int) -> int:
    """Threads of each worker: its share of the cores, or fewer where OMP_NUM_THREADS asks for fewer."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    share = max(1, n_cores // n_workers)
    return min(share, int(asked)) if asked.isdecimal() and int(asked) else share


def choose_workers(jobs: Sequence[Job], n_cores: int, gpu_bytes: int | None) -> int:
    """How many processes suit the jobs: one per core on a CPU; on a GPU as many as its memory holds, up to 8.

    Jobs of the engine protocol take a core each even in a run on a GPU, so with some of these all cores are used.
    Diagnostic studies train larger models: up to 4, of causal language models as many as have 35 GB each.

    Args:
        gpu_bytes: Memory of the GPU; None for a run on the CPU.

    Example:
        >>> from ruler.experiment.grid import group_jobs, list_cells
        >>> from ruler.experiment.studies import STUDIES
        >>> slow = group_jobs(list_cells(STUDIES["minibatch"]))
        >>> fast = group_jobs(list_cells(STUDIES["primary"]), device="cuda")
        >>> large = group_jobs(list_cells(STUDIES["images"]))
        >>> [choose_workers(jobs, 16, 140 << 30) for jobs in (fast, fast + slow, fast + slow + large)]
        [8, 16, 4]
        >>> choose_workers(fast, 16, 8 << 30), choose_workers(group_jobs(list_cells(STUDIES["tofu"])), 16, 80 << 30)
        (2, 2)
    """
    if gpu_bytes is None:
        return n_cores
    engines = {job.cells[0].engine for job in jobs}
    if engines & {"diagnostic", "compare"}:
        most = _MOST_DIAGNOSTIC_WORKERS
    else:
        most = n_cores if "protocol" in engines else _MOST_GPU_WORKERS
    is_causal = any(job.cells[0].architecture == "causal_lm" for job in jobs)
    return max(1, min(most, n_cores, gpu_bytes // (_CAUSAL_WORKER_BYTES if is_causal else _GPU_WORKER_BYTES)))


def _measure_gpu() -> int:
    cuda = load_optional("torch", "training models").cuda
    if not cuda.is_available():
        raise InputError("device must be cpu on this machine; got cuda, and torch finds no CUDA device.")
    return int(cuda.get_device_properties(0).total_memory)


def _start_worker(store: Path, workplace: Workplace, n_threads: int) -> _Worker:
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_work, args=(theirs, store, workplace, n_threads), daemon=True)
    with _environment(worker_variables(n_threads)), _holding_interrupts():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Block Ctrl-C: processes that are started meanwhile never see one, not even while they load."""
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
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile, and restore them."""
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


def _stop(workers: Sequence[_Worker]) -> None:
    for worker in workers:
        worker.pipe.close()
        worker.process.terminate()
    for worker in workers:
        worker.process.join(_GRACE_S)
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _work(pipe: Connection, path: Path, workplace: Workplace, n_threads: int) -> None:
    """Run in a worker: take a job, write its rows to the store, report, until the coordinator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the coordinator decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        with ResultStore(path) as store:
            while True:
                try:
                    job = pipe.recv()
                except (EOFError, OSError):
                    return
                made_by = describe_process(job.device_for(workplace.device))
                for outcome in run_job(job, workplace, n_threads=n_threads):
                    store.add(outcome, made_by)
                pipe.send(None)
    except RulerError as error:
        pipe.send(error)


def _die_with_parent() -> None:
    """End at once when the coordinator does, however it ended: an orphan would work beside the next run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
