"""What a worker process is given and does, wherever it runs."""

from collections.abc import Iterator, Sequence

from ruler.core.optional import load_optional
from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.grid import Job

MOST_DEATHS = 3
"""A job that takes this many workers with it is given up."""

_MOST_GPU_WORKERS = 8  # they overlap the host's work with the device's; more only share the device
_MOST_DIAGNOSTIC_WORKERS = 4
_GPU_WORKER_BYTES = 1 << 32  # a context, the chunks of an ensemble, and the models that are scored at once


def choose_workers(jobs: Sequence[Job], n_cores: int, gpu_bytes: int | None) -> int:
    """How many processes suit the jobs: one a core on a CPU; on a GPU as many as its memory holds, up to 8.

    Jobs of the protocol take a core each even in a run on a GPU, so that with some of these all cores are used.
    Diagnostic studies train larger models: up to 4.

    Args:
        gpu_bytes: Memory of the GPU; None for a run on the CPU.

    Example:
        >>> from dataclasses import replace
        >>> from ruler.experiment.grid import group_jobs, list_cells
        >>> from ruler.experiment.studies import STUDIES
        >>> slow = group_jobs(list_cells(STUDIES["minibatch"]))
        >>> fast = group_jobs(list_cells(replace(STUDIES["primary"], engine="ensemble")))
        >>> large = group_jobs(list_cells(STUDIES["images"]))
        >>> [choose_workers(jobs, 16, 140 << 30) for jobs in (fast, fast + slow, fast + slow + large)]
        [8, 16, 4]
        >>> choose_workers(fast, 16, 8 << 30)
        2
    """
    if gpu_bytes is None:
        return n_cores
    engines = {job.cells[0].engine for job in jobs}
    if "diagnostic" in engines:
        most = _MOST_DIAGNOSTIC_WORKERS
    else:
        most = n_cores if "protocol" in engines else _MOST_GPU_WORKERS
    return max(1, min(most, n_cores, gpu_bytes // _GPU_WORKER_BYTES))


def measure_gpu(device: str) -> int | None:
    """Bytes of memory of the GPU that ``cuda`` means; None for ``cpu``.

    Example:
        >>> measure_gpu("cpu")
    """
    if device != "cuda":
        return None
    return int(load_optional("torch", "training models").cuda.get_device_properties(0).total_memory)


def choose_device(job: Job, device: str) -> str:
    """Where a job of a run on this device takes place: the protocol runs on a CPU alone.

    Example:
        >>> from ruler.experiment.grid import Cell
        >>> choose_device(Job((Cell("primary", "adult", "scrub", 0.05, 0, 5e-4),)), "cuda")
        'cpu'
    """
    return "cpu" if job.cells[0].engine == "protocol" else device


def do_cells(job: Job, workplace: Workplace, n_threads: int) -> Iterator[Outcome]:
    """Run a job and tell of every cell as it ends.

    Args:
        n_threads: For other engines than the protocol, which runs on one thread whatever the number of workers, so that
            sums are added up in the same order and no number depends on it.
    """
    import torch

    torch.set_num_threads(1 if job.cells[0].engine == "protocol" else n_threads)
    yield from run_job(job, workplace)
