import math

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.core.stacked import StackedRows
from ruler.neighbors import blocks
from ruler.neighbors import plan as plan_module
from ruler.neighbors.blocks import Workers, find_neighbors_by_blocks, search_pair
from ruler.neighbors.cpu import PassTimes
from ruler.neighbors.plan import SearchPlan, plan_by_blocks, plan_search

ROWS = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
FEW = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)


@pytest.fixture
def fixed_clock(monkeypatch):
    """A machine whose pilot takes what we say; keeps the pilots."""
    seen = []

    def time_passes(problem, arithmetic, pool):
        seen.append(problem)
        return PassTimes(scan_s=2.0, recheck_s=0.5, n_rechecked=len(problem.queries))

    monkeypatch.setattr(plan_module, "time_passes", time_passes)
    monkeypatch.setattr(plan_module, "time_reading", lambda matrix: 1e-6)
    monkeypatch.setattr(plan_module, "PILOT_TILES", 8)
    return seen


def test_the_scan_goes_by_pairs_and_the_recheck_by_queries(fixed_clock):
    plan = plan_search(ROWS[:4000], ROWS)
    n_queries, n_base = len(fixed_clock[0].queries), len(fixed_clock[0].base)
    assert (n_queries, n_base) == (2 * 1024 - 96, 8 * 1024 - (20 * 1024 - 20_000))
    assert plan.elapsed_s == pytest.approx(
        2.0 * (4000 / n_queries) * (20_000 / n_base) + 0.5 * 4000 / n_queries + 24_000 * 1e-6
    )
    assert plan.flops == 2 * 4000 * 20_000 * 16


@pytest.mark.parametrize(("a_query", "growth"), [(lambda n: 3, 0), (lambda n: n / 1000, 1), (lambda n: n**0.5, 0.5)])
@pytest.mark.parametrize("is_self", [True, False])
def test_candidates_that_grow_with_the_rows_are_looked_at_longer(monkeypatch, a_query, growth, is_self):
    monkeypatch.setattr(plan_module, "PILOT_TILES", 8)
    monkeypatch.setattr(plan_module, "time_reading", lambda matrix: 0.0)

    def time_passes(problem, arithmetic, pool):
        return PassTimes(0.0, 1e-3 * len(problem.queries), int(len(problem.queries) * (1 + a_query(len(problem.base)))))

    monkeypatch.setattr(plan_module, "time_passes", time_passes)
    rows = np.ones((40 * 1024, 4), np.float32) * np.arange(1, 4 * 1024 * 10 + 1, dtype=np.float32)[:, None]
    plan = plan_search(rows if is_self else rows[:4096], rows)
    assert plan.growth == pytest.approx(growth, abs=1e-3)
    n_times = (1 + a_query(40 * 1024)) / (1 + a_query(8 * 1024))
    assert plan.recheck_s == pytest.approx(1e-3 * plan.n_queries * n_times, rel=1e-3)


def test_rows_that_the_pilot_holds_whole_are_not_extrapolated(fixed_clock):
    plan = plan_search(ROWS[:500], ROWS[:1000])
    assert (plan.growth, plan.recheck_s) == (0.0, 0.5)


def test_a_self_search_is_half_the_flops(fixed_clock):
    plan = plan_search(ROWS, ROWS, exclude_self=True)
    n_base = len(fixed_clock[0].base)
    share = 20_000 * (20_000 + 1024) / (n_base * (n_base + 1024))
    assert plan.elapsed_s == pytest.approx(2.0 * share + 0.5 * 20_000 / n_base + 20_000 * 1e-6)
    assert plan.flops == 20_000 * 20_000 * 16
    assert plan.is_self


def test_bytes_are_counted_by_how_often_the_base_passes(fixed_clock):
    one_round = plan_search(ROWS[:4000], ROWS)
    assert one_round.bytes_read == 3 * ROWS.nbytes + 3 * ROWS[:4000].nbytes
    assert plan_search(ROWS, ROWS).bytes_read == 3 * ROWS.nbytes


def test_shards_are_read_in_part_only(fixed_clock, monkeypatch):
    stacked = StackedRows(np.array_split(ROWS, 5))
    read = []
    monkeypatch.setattr(StackedRows, "_count", lambda self, n_bytes: read.append(n_bytes))
    plan_search(ROWS[:10], stacked)
    assert sum(read) <= 8 * (1024 * 16 * 4 + (2 << 20))


def test_the_plan_says_what_where_and_how_long():
    plan = plan_search(ROWS, ROWS, exclude_self=True)
    assert str(plan).startswith("20,000 rows in themselves of width 16: 0.0064 TFLOP, 0.00384 GB read, ")
    assert f"({plan.arithmetic}, {plan.n_threads} threads)" in str(plan)
    assert str(plan_search(ROWS[:10], ROWS)).startswith("10 in 20,000 rows of width 16")
    assert plan.elapsed_s > 0
    assert plan.memory_bytes > 80 * 20_000


def test_a_plan_refuses_what_the_search_would():
    with pytest.raises(InputError, match="queries and base must have the same number of columns"):
        plan_search(ROWS[:, :3], ROWS)
    broken = ROWS[:2000].copy()
    broken[7, 0] = np.nan
    with pytest.raises(InputError, match="must be finite; got NaN or inf in 1 rows"):
        plan_search(ROWS[:10], broken)


@pytest.fixture
def here(monkeypatch):
    """This machine takes 100 s, 10 s and 1 s, on two threads; blocks are of 25 to 400 rows. Holds the growth."""
    growth = [0.0]

    def plan_search(queries, base, **options):
        shape = (len(queries), len(base), base.shape[1], queries is base)
        return SearchPlan(
            *shape, "numpy float32", 2, 0.0, 0.0, 0.0, 100.0, recheck_s=10.0, reading_s=1.0, growth=growth[0]
        )

    monkeypatch.setattr(plan_module, "plan_search", plan_search)
    monkeypatch.setattr(blocks, "MOST_ROWS", 400)
    monkeypatch.setattr(blocks, "MOST_ROWS_ON_GPU", 800)
    return growth


@pytest.mark.parametrize("base", [FEW, FEW[:700]])
def test_tasks_and_bytes_are_those_of_the_search(here, base):
    plan = plan_by_blocks(FEW, base, workers=Workers(10))
    read, tasks = [], []

    def watch(work, pairs):
        for pair in pairs:
            spans = {pair.rows, pair.columns} if pair.queries is pair.base else [pair.rows, pair.columns]
            read.append(sum(stop - start for start, stop in spans) * 8 * 4)
            tasks.append(pair)
            yield search_pair(pair)

    find_neighbors_by_blocks(FEW, base, block_rows=plan.block_rows, run=watch)
    assert plan.n_tasks == len(tasks) >= 40
    assert plan.bytes_read == sum(read)


def test_time_is_shared_and_what_goes_by_blocks_is_repeated(here):
    plan = plan_by_blocks(FEW, FEW, workers=Workers(3))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.elapsed_s == pytest.approx((2 * (100 + 5 * 10) + 5 * 1) / 3)
    plan = plan_by_blocks(FEW, FEW, workers=Workers(2, n_threads=4))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.elapsed_s == pytest.approx((2 * (100 + 5 * 10) / 4 + 5 * 1) * 8 / 15)  # eight turns
    plan = plan_by_blocks(FEW[:50], FEW.copy(), workers=Workers(1))
    assert (plan.block_rows, plan.n_tasks) == (200, 5)
    assert plan.elapsed_s == pytest.approx(2 * (100 + 5 * 10) + 1 * (1000 + 5 * 50) / 1050)
    assert str(plan).startswith("50 in 1,000 rows of width 8: 8e-07 TFLOP, 5 tasks of two blocks of at most 200 rows, ")
    assert str(plan).endswith(" GB read, 5.02 min")


def test_candidates_that_grow_with_the_rows_are_shared_out_with_them(here):
    here[0] = 1.0
    plan = plan_by_blocks(FEW, FEW, workers=Workers(3))
    assert plan.elapsed_s == pytest.approx((2 * (100 + 10) + 5 * 1) / 3)


def test_accelerators_are_counted_but_not_timed(here):
    plan = plan_by_blocks(FEW, FEW, workers=Workers(2, device="cuda"))
    assert (plan.block_rows, plan.n_tasks) == (200, 15)
    assert plan.flops == 2 * 8 * (1000 * 1000 - 1000 * 200 / 2)  # both ways, but within a block
    assert plan_by_blocks(FEW, FEW, workers=Workers(1)).flops == 8 * 1000 * 1000
    assert math.isnan(plan.elapsed_s)
    assert "min" not in str(plan)


def test_a_plan_for_workers_refuses_what_the_search_would():
    with pytest.raises(InputError, match="queries and base must have the same number of columns"):
        plan_by_blocks(FEW[:, :3], FEW, workers=Workers(1, device="cuda"))
