"""A search shared out to many workers: how large its blocks are, and what it will take."""

import math
from dataclasses import dataclass
from typing import Any

from ruler.neighbors.plan import SearchPlan, plan_search
from ruler.neighbors.search import as_request

_TASKS_A_WORKER = 4  # so that those who are done do not wait long for the last
_MOST_ROWS, _MOST_ROWS_ON_GPU = 1 << 18, 1 << 20
_FINEST = 16  # a block of a sixteenth of the most: under it, reading and hashing take longer than the products


@dataclass(frozen=True)
class Workers:
    """Who does the tasks of a search.

    Args:
        n_workers: Tasks that are done at once.
        n_threads: Of each.
        device: Of each, as `find_neighbors`; None for the CPU.
    """

    n_workers: int
    n_threads: int = 1
    device: str | None = None

    def choose_block_rows(self, n_queries: int, n_rows: int, *, is_self: bool) -> int:
        """Rows a block, so that every worker gets several tasks and none is tiny; the answer does not depend on it.

        Example:
            >>> [Workers(n).choose_block_rows(1_000_000, 1_000_000, is_self=True) for n in (1, 8, 64, 4096)]
            [262144, 131072, 32768, 16384]
        """
        most = _MOST_ROWS if self.device is None else _MOST_ROWS_ON_GPU
        rows = most
        while rows > most // _FINEST and (
            count_tasks(n_queries, n_rows, rows, is_self=is_self) < _TASKS_A_WORKER * self.n_workers
        ):
            rows //= 2
        return rows


@dataclass(frozen=True)
class BlockPlan:
    """A search that was counted for workers, and timed as if they were this machine, but not run.

    Args:
        n_queries: Rows to look up.
        n_rows: Rows to search.
        width: Columns.
        is_self: A set searched in itself.
        block_rows: Most rows of a block.
        n_tasks: Pairs of blocks.
        flops: Of the first pass, a multiply and an add counted as two.
        bytes_read: By the tasks, of which each reads its two blocks.
        elapsed_s: Seconds it should take if a worker's core is as fast as one here; NaN on accelerators, whose speed
            cannot be told from here.
    """

    n_queries: int
    n_rows: int
    width: int
    is_self: bool
    block_rows: int
    n_tasks: int
    flops: float
    bytes_read: float
    elapsed_s: float

    def __str__(self) -> str:
        what = f"{self.n_rows:,} rows in themselves" if self.is_self else f"{self.n_queries:,} in {self.n_rows:,} rows"
        took = "" if math.isnan(self.elapsed_s) else f", {self.elapsed_s / 60:,.3g} min"
        return (
            f"{what} of width {self.width}: {self.flops / 1e12:,.3g} TFLOP, {self.n_tasks:,} tasks of two blocks of "
            f"at most {self.block_rows:,} rows, {self.bytes_read / 1e9:,.3g} GB read{took}"
        )


def count_tasks(n_queries: int, n_rows: int, block_rows: int, *, is_self: bool) -> int:
    """Pairs of blocks of a search, each once where a set is searched in itself.

    Example:
        >>> count_tasks(10, 10, 4, is_self=True), count_tasks(5, 10, 4, is_self=False)
        (6, 6)
    """
    n_base = -(-n_rows // block_rows)
    return n_base * (n_base + 1) // 2 if is_self else n_base * -(-n_queries // block_rows)


def plan_by_blocks(queries: Any, base: Any, *, workers: Workers, k: int = 1, exclude_self: bool = False) -> BlockPlan:
    """How many tasks, operations and bytes is this search for these workers, and how long should they take?

    Args:
        queries: As `find_neighbors`.
        base: As `find_neighbors`; the same object for a set searched in itself.
        workers: Who does it.
        k: How many neighbours a query.
        exclude_self: As `find_neighbors`.

    Raises:
        InputError: As `find_neighbors`, as far as shapes and the rows that are looked at show it.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(40_000, 8))
        >>> plan = plan_by_blocks(rows, rows, workers=Workers(2), exclude_self=True)
        >>> plan.block_rows, plan.n_tasks, plan.bytes_read == 3 * rows.nbytes
        (16384, 6, True)
    """
    is_self = queries is base
    query_rows, base_rows = as_request(queries, base, k, exclude_self)
    n_queries, (n_rows, width) = len(query_rows), base_rows.shape
    block_rows = workers.choose_block_rows(n_queries, n_rows, is_self=is_self)
    n_tasks = count_tasks(n_queries, n_rows, block_rows, is_self=is_self)
    n_blocks = -(-n_queries // block_rows), -(-n_rows // block_rows)
    # a set searched in itself: on a CPU a product serves both of its rows, on an accelerator only within a block
    n_shared = n_rows * (n_rows if workers.device is None else min(n_rows, block_rows)) if is_self else 0
    elapsed_s = math.nan
    if workers.device is None:
        here = plan_search(query_rows, base_rows, k=k, exclude_self=exclude_self)
        elapsed_s = _time_worker(here, workers, n_blocks) / n_tasks * -(-n_tasks // workers.n_workers)
    return BlockPlan(
        n_queries,
        n_rows,
        width,
        is_self,
        block_rows,
        n_tasks,
        flops=2.0 * width * (n_queries * n_rows - n_shared / 2),
        bytes_read=float(base_rows.nbytes * n_blocks[0] + (0 if is_self else query_rows.nbytes * n_blocks[1])),
        elapsed_s=elapsed_s,
    )


def _time_worker(here: SearchPlan, workers: Workers, n_blocks: tuple[int, int]) -> float:
    """Seconds of one worker that did all tasks: rows are read, and queries rechecked, again in every block.

    Where candidates grow with the rows, a block has fewer of them.
    """
    n_query_blocks, n_base_blocks = n_blocks
    n_here = here.n_rows + (0 if here.is_self else here.n_queries)
    n_read = here.n_rows * n_query_blocks + (0 if here.is_self else here.n_queries * n_base_blocks)
    recheck_s: float = here.recheck_s * n_base_blocks ** (1 - here.growth)
    core_s = (here.scan_s + recheck_s) * here.n_threads
    return core_s / workers.n_threads + here.reading_s * n_read / n_here
