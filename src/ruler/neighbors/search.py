"""The one door to nearest-neighbour search: `find_neighbors`."""

from typing import TYPE_CHECKING, Protocol

from ruler.core.checks import check_same_space
from ruler.core.registry import Registry
from ruler.core.types import Neighbors, RowsLike
from ruler.neighbors.cpu import CpuEngine
from ruler.neighbors.cuda.engine import CudaEngine
from ruler.neighbors.engines import Engine, Request

if TYPE_CHECKING:
    import torch

ENGINES: Registry[Engine] = Registry("engine", {"cpu": CpuEngine(), "cuda": CudaEngine()})
"""Who can search: the last one that is usable does. `ENGINES.register` adds one of your own."""


class Searcher(Protocol):
    """Whatever searches as `find_neighbors` does: itself, on a device, or `find_neighbors_by_blocks` on workers."""

    def __call__(self, queries: RowsLike, base: RowsLike, *, k: int = 1, exclude_self: bool = False) -> Neighbors:
        """The k best base rows of each query, exactly."""
        ...


def find_neighbors(
    queries: RowsLike,
    base: RowsLike,
    *,
    k: int = 1,
    exclude_self: bool = False,
    device: "str | torch.device | None" = None,
) -> Neighbors:
    """Which k base rows are most similar to each query, and how similar are they?

    Exact: the answer of a float64 computation, s(a, b) = 1 - |a - b|^2 / 2 over rows of norm 1 (Eq. 1), whatever the
    block size, number of threads, row order or device. Low precision only narrows the search. Memory beyond the inputs
    and the answer stays under 300 MB; inputs may be memory maps.

    Args:
        queries: (n, p) rows to look up; NumPy, torch on any device, JAX, CuPy, lists, `Embeddings`.
        base: (m, p) rows to search. Pass the same object to search a set in itself: half the work.
        k: How many neighbours per query.
        exclude_self: Leave base row i out for query i (leave-one-out, Eq. 6); needs n = m.
        device: "cpu", "cuda" or a torch device; "cuda:all" or "cuda:0,cuda:1" share the work; None goes where the
            data is.

    Returns:
        `Neighbors` with ``similarity`` (n, k) descending in [-1, 1] and ``index`` (n, k); ties by smallest index.

    Raises:
        InputError: Not 2-D, empty, NaN or inf, norms out of range, widths that differ, k out of range; `Embeddings` of
            different layers or columns.

    Example:
        >>> found = find_neighbors([[1.0, 0.0]], [[0.0, 1.0], [3.0, 4.0], [2.0, 0.0]], k=2)
        >>> found.index.tolist(), found.similarity.round(12).tolist()
        ([[2, 1]], [[1.0, 0.6]])
    """
    return search(queries, base, names=("queries", "base"), k=k, exclude_self=exclude_self, device=device)


def search(
    queries: RowsLike,
    base: RowsLike,
    *,
    names: tuple[str, str],
    k: int = 1,
    exclude_self: bool = False,
    device: "str | torch.device | None" = None,
) -> Neighbors:
    """`find_neighbors` whose errors speak of the caller's own arguments."""
    check_same_space(queries, base, names)
    request = Request(queries, base, k, exclude_self, None if device is None else str(device), names)
    usable = [engine for engine in ENGINES.values() if engine.is_usable_for(request)]
    return usable[-1].search(request)
