"""Workers that feed changed files to the readers and count what comes back.

A failure is any exception that is not ours, memory beyond 1 GB, an input that takes 20 s of CPU time or hangs for two
minutes, or a dead worker.
"""

import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from random import Random
from typing import TypeAlias

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import TARGETS, Files, Target, quiet

from ruler.core.errors import RulerError

MOST_BYTES = 1 << 30
_MOST_S, _MOST_WALL_S = 20, 120  # the second only for what waits, since other processes may be busy
_SLICE_S = 1.0
_KILLED = {
    signal.SIGPROF: f"took longer than {_MOST_S} s",
    signal.SIGALRM: f"hung for {_MOST_WALL_S} s",
    signal.SIGSEGV: "crashed",
    signal.SIGKILL: "was killed",
}


Answers: TypeAlias = "SimpleQueue[tuple[str, Count, list[Failure]]]"


@dataclass
class Count:
    """What became of the inputs of one target."""

    n_inputs: int = 0
    n_refused: int = 0
    n_failed: int = 0
    cpu_s: float = 0.0
    most_bytes: int = 0

    def add(self, other: "Count") -> None:
        """Add another part of the same target."""
        self.n_inputs += other.n_inputs
        self.n_refused += other.n_refused
        self.n_failed += other.n_failed
        self.cpu_s += other.cpu_s
        self.most_bytes = max(self.most_bytes, other.most_bytes)


@dataclass(frozen=True)
class Failure:
    """One input that no error of ours answered, with the files that show it."""

    target: str
    what: str
    files: Files


def vary(target: Target, random: Random) -> Iterator[Files]:
    """Files with one of them changed, for ever."""
    names = target.changed or tuple(target.files)
    while True:
        name = random.choice(names)
        container = target.containers.get(name)
        change = container.mutate if container and random.random() < 0.5 else mutate
        files = {**target.files, name: change(random, target.files[name])}
        yield target.repair(files) if target.repair else files


def feed(target: Target, folder: Path, files: Files, written: Files) -> str | None:
    """Write what differs from ``written``, read it, and say what went wrong; None if nothing did."""
    for name in set(os.listdir(folder)) - {name.partition("/")[0] for name in files}:
        (folder / name).unlink()  # what a reader left
    for name, content in files.items():
        if written.get(name) is not content:
            (folder / name).write_bytes(content)
            written[name] = content
    try:
        target.read(folder)
    except RulerError as error:
        if _ran_out(error):
            return f"more than 1 GB: {error}"
        raise
    return None


def _ran_out(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def fuzz(name: str, random: Random, seconds: float, folder: Path, found: list[Failure]) -> Count:
    """Feed one target for some seconds of this process's time."""
    target, count, written = TARGETS[name](), Count(), Files()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    started_s = time.process_time()
    for files in vary(target, random):
        signal.setitimer(signal.ITIMER_PROF, _MOST_S)
        signal.alarm(_MOST_WALL_S)
        what: str | None
        try:
            what = feed(target, folder, files, written)
        except RulerError:
            count.n_refused += 1
            what = None
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            what = "".join(traceback.format_exception(error))
        if what is not None:
            count.n_failed += 1
            found.append(Failure(name, what, files))
        count.n_inputs += 1
        count.cpu_s = time.process_time() - started_s
        if count.cpu_s > seconds:
            break
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    count.most_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return count


def _limit_memory(names: Sequence[str], folder: Path) -> None:
    """1 GB more than the process has once all packages are loaded and every sound file was read."""
    for name in names:
        fuzz(name, Random(0), 0.0, folder, [])
        feed(TARGETS[name](), folder, TARGETS[name]().files, {})
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def work(
    names: Sequence[str], seed: int, seconds: float, place: Path, answers: "SimpleQueue[tuple[object, ...]]"
) -> None:
    """Go round the targets until the time is over; ``place/now`` says which one is being fed."""
    random = Random(seed)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries print what they think of such files
    with quiet():
        _limit_memory(names, place / "input")
        ends_s = time.monotonic() + seconds
        is_first = True
        while is_first or time.monotonic() < ends_s:
            for name in random.sample(names, len(names)):
                (place / "now").write_text(name)
                found: list[Failure] = []
                slice_s = min(_SLICE_S, seconds / len(names) / 2)
                answers.put((name, fuzz(name, random, slice_s, place / "input", found), found[:3]))
                if time.monotonic() >= ends_s and not is_first:
                    return
            is_first = False


def run(seconds: float, jobs: int, names: Sequence[str] = (), seed: int = 0) -> tuple[dict[str, Count], list[Failure]]:
    """Feed the targets from ``jobs`` processes for so long; a worker that dies is a failure, and is replaced."""
    names = list(names) or list(TARGETS)
    counts, failures = {name: Count() for name in names}, []
    context = multiprocessing.get_context("spawn")
    answers: Answers = context.SimpleQueue()
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="ruler-fuzz-", dir=memory if memory.is_dir() else None))
    ends_s = time.monotonic() + seconds
    workers: dict[int, multiprocessing.process.BaseProcess] = {}
    try:
        for number in range(jobs):
            workers[number] = _start(context, names, seed + number, seconds, root / str(number), answers)
        while workers:
            while not answers.empty():
                name, count, found = answers.get()
                counts[name].add(count)
                failures += found
            for number, worker in list(workers.items()):
                worker.join(0.05)
                if worker.exitcode is None:
                    continue
                del workers[number]
                if worker.exitcode:
                    failures.append(_bury(root / str(number), worker.exitcode))
                    counts[failures[-1].target].n_failed += 1
                    left_s = ends_s - time.monotonic()
                    if left_s > 1:
                        seed += jobs
                        workers[number] = _start(context, names, seed + number, left_s, root / str(number), answers)
    finally:
        for worker in workers.values():
            worker.terminate()
        shutil.rmtree(root, ignore_errors=True)
    return counts, failures


def _start(context, names, seed, seconds, place, answers):  # type: ignore[no-untyped-def]
    place.mkdir(exist_ok=True)
    worker = context.Process(target=work, args=(names, seed, seconds, place, answers))
    worker.start()
    return worker


def _bury(place: Path, status: int) -> Failure:
    name = (place / "now").read_text() if (place / "now").is_file() else next(iter(TARGETS))
    what = _KILLED.get(signal.Signals(-status), "died") if status < 0 else "ended"
    files = {path.name: path.read_bytes() for path in (place / "input").glob("*") if path.is_file()}
    return Failure(name, f"the worker {what} (status {status})", files)
