"""What a worker process is given and does, wherever it runs."""

from collections.abc import Iterator

from ruler.experiment.cell import Outcome, Workplace, run_job
from ruler.experiment.grid import Job

MOST_DEATHS = 3
"""A job that takes this many workers with it is given up."""


def choose_variables(n_threads: int) -> dict[str, str]:
    """What a new process must find set before its libraries load.

    Example:
        >>> choose_variables(2)["OMP_NUM_THREADS"]
        '2'
    """
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(n_threads)),
        # glibc: keep freed blocks, instead of fetching zeroed pages anew for the tensors of every step
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 31),
    }


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
