import math

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.neighbors import workers as module
from ruler.neighbors.plan import SearchPlan
from ruler.neighbors.sharded import find_neighbors_by_blocks, search_pair
from ruler.neighbors.workers import Workers, count_tasks, plan_by_blocks

ROWS = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)


@pytest.fixture
def here(monkeypatch):
    """This machine takes 100 s, 10 s and 1 s, on two threads; blocks are of 25 to 400 rows. Holds the growth."""
    growth = [0.0]

    def plan_search(queries, base, **options):
        shape = (len(queries), len(base), base.shape[1], queries is base)
        return SearchPlan(*shape, "engine", 2, 0.0, 0.0, 0.0, 100.0, recheck_s=10.0, reading_s=1.0, growth=growth[0])

    monkeypatch.setattr(module, "plan_search", plan_search)
    monkeypatch.setattr(module, "_MOST_ROWS", 400)
    monkeypatch.setattr(module, "_MOST_ROWS_ON_GPU", 800)
    return growth


@pytest.mark.parametrize("is_self", [True, False])
@pytest.mark.parametrize("n_rows", [5_000, 262_144, 3_000_000])
@pytest.mark.parametrize(("device", "most"), [(None, 1 << 18), ("cuda", 1 << 20)])
def test_every_worker_gets_several_tasks_none_tiny(n_rows, is_self, device, most):
    for n_workers in (1, 2, 8, 64, 1000):
        rows = Workers(n_workers, device=device).choose_block_rows(10_000, n_rows, is_self=is_self)
        assert most // 16 <= rows <= most
        if rows > most // 16:
            assert count_tasks(10_000, n_rows, rows, is_self=is_self) >= 4 * n_workers
        if rows < most:
            assert count_tasks(10_000, n_rows, 2 * rows, is_self=is_self) < 4 * n_workers


@pytest.mark.parametrize("base", [ROWS, ROWS[:700]])
def test_tasks_and_bytes_are_those_of_the_search(here, base):
    plan = plan_by_blocks(ROWS, base, workers=Workers(10))
    read, tasks = [], []

    def watch(work, pairs):
        for pair in pairs:
            spans = {pair.rows, pair.columns} if pair.queries is pair.base else [pair.rows, pair.columns]
            read.append(sum(stop - start for start, stop in spans) * 8 * 4)
            tasks.append(pair)
            yield search_pair(pair)

    find_neighbors_by_blocks(ROWS, base, block_rows=plan.block_rows, run=watch)
    assert plan.n_tasks == len(tasks) >= 40
    assert plan.bytes_read == sum(read)


def test_time_is_shared_and_what_goes_by_blocks_is_repeated(here):
    plan = plan_by_blocks(ROWS, ROWS, workers=Workers(3))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.elapsed_s == pytest.approx((2 * (100 + 5 * 10) + 5 * 1) / 3)
    plan = plan_by_blocks(ROWS, ROWS, workers=Workers(2, n_threads=4))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.elapsed_s == pytest.approx((2 * (100 + 5 * 10) / 4 + 5 * 1) * 8 / 15)  # eight turns
    plan = plan_by_blocks(ROWS[:50], ROWS.copy(), workers=Workers(1))
    assert (plan.block_rows, plan.n_tasks) == (200, 5)
    assert plan.elapsed_s == pytest.approx(2 * (100 + 5 * 10) + 1 * (1000 + 5 * 50) / 1050)
    assert str(plan).startswith("50 in 1,000 rows of width 8: 8e-07 TFLOP, 5 tasks of two blocks of at most 200 rows, ")
    assert str(plan).endswith(" GB read, 5.02 min")


def test_candidates_that_grow_with_the_rows_are_shared_out_with_them(here):
    here[0] = 1.0
    plan = plan_by_blocks(ROWS, ROWS, workers=Workers(3))
    assert plan.elapsed_s == pytest.approx((2 * (100 + 10) + 5 * 1) / 3)


def test_accelerators_are_counted_but_not_timed(here):
    plan = plan_by_blocks(ROWS, ROWS, workers=Workers(2, device="cuda"))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.flops == 2 * 8 * (1000 * 1000 - 1000 * 200 / 2)  # both ways, but within a block
    assert plan_by_blocks(ROWS, ROWS, workers=Workers(1)).flops == 8 * 1000 * 1000
    assert math.isnan(plan.elapsed_s)
    assert "min" not in str(plan)


def test_a_plan_refuses_what_the_search_would():
    with pytest.raises(InputError, match="queries and base must have the same number of columns"):
        plan_by_blocks(ROWS[:, :3], ROWS, workers=Workers(1, device="cuda"))
