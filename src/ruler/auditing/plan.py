"""What an audit will take, before it starts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ruler.auditing.evidence import SideRows
from ruler.auditing.gather import GivenModel, check_numbers, split_models
from ruler.auditing.provenance import hash_rows
from ruler.auditing.settings import AuditSettings
from ruler.core.checks import block_rows_for, measure_norms
from ruler.core.errors import InputError
from ruler.metrics.paper import compare_rows
from ruler.neighbors.blocks import Workers
from ruler.neighbors.plan import BlockPlan, SearchPlan, plan_by_blocks, plan_search
from ruler.stats.permutation import compare_families

WORTH_PLANNING = 2e12
"""Multiply-adds of a search: under it the audit takes some seconds, and a pilot as many."""

_PILOT_DRAWS = 99
_PILOT_RECORDS = 20_000
_PILOT_READS = 8


@dataclass(frozen=True)
class AuditPlan:
    """The work of an audit, counted and timed on a sample of its own rows, but not done.

    Args:
        searches: One a model and side, in the order they will run.
        bytes_read: Of all searches and passes over the files.
        memory_bytes: Most memory of the process, beyond arrays that the caller holds; NaN with workers, for theirs is
            not known here.
        reading_s: Seconds of checking, comparing and hashing rows.
        testing_s: Seconds of permutations.
        workers: Who searches; None for this process.
    """

    searches: tuple[SearchPlan | BlockPlan, ...]
    bytes_read: float
    memory_bytes: float
    reading_s: float
    testing_s: float
    workers: Workers | None = None

    @property
    def flops(self) -> float:
        """Of all searches."""
        return sum(search.flops for search in self.searches)

    @property
    def elapsed_s(self) -> float:
        """Seconds that the audit should take here and now; NaN if the searches cannot be timed from here."""
        return sum(search.elapsed_s for search in self.searches) + self.reading_s + self.testing_s

    def __str__(self) -> str:
        lines = [f"  search {search}" for search in self.searches]
        lines.append(f"  reading {self.reading_s / 60:,.2g} min, tests {self.testing_s / 60:,.2g} min")
        if self.workers is not None:
            lines[-1] += ", on this machine"
        return "\n".join([self._sum_up() if self.workers is None else self._sum_up_tasks(self.workers), *lines])

    def _sum_up(self) -> str:
        return (
            f"plan: about {self.elapsed_s / 60:,.3g} min, {self.flops / 1e12:,.3g} TFLOP, "
            f"{self.bytes_read / 1e9:,.3g} GB read, at most {self.memory_bytes / 1e9:,.2g} GB of memory"
        )

    def _sum_up_tasks(self, workers: Workers) -> str:
        tasks = [search for search in self.searches if isinstance(search, BlockPlan)]
        n_tasks, n_bytes = sum(search.n_tasks for search in tasks), sum(search.bytes_read for search in tasks)
        work = f"{self.flops / 1e12:,.3g} TFLOP, {n_bytes / 1e9:,.3g} GB read by {n_tasks:,} tasks"
        at_once = f"{workers.n_workers:,} at a time"
        if workers.device is not None:
            return f"plan: {work}, {at_once}; minutes are not estimated for GPUs"
        minutes = f"about {self.elapsed_s / 60:,.3g} min if the cluster's cores are as fast as this machine's"
        cores = f"{workers.n_threads} core{'s' if workers.n_threads > 1 else ''}"
        return f"plan: {minutes}, {work}, {at_once} on {cores} each"


def plan_audit(
    unlearned: Any,
    *,
    oracle: Any = None,
    original: Any = None,
    settings: AuditSettings | None = None,
    workers: Workers | None = None,
) -> AuditPlan:
    """How long would `audit` take on this evidence, on this machine or with these workers, and how much memory?

    Takes some seconds: shapes are counted, and a sample of the rows goes through every stage against the clock.

    Args:
        unlearned: As `audit`.
        oracle: As `audit`.
        original: As `audit`.
        settings: As `audit`.
        workers: Who searches, as in `searching_by_blocks`; None for this process.

    Raises:
        InputError: As `audit`, as far as shapes and the rows that are looked at show it.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(900, 4))
        >>> plan = plan_audit(tuple(np.split(rows, [200, 500])))
        >>> [(search.n_queries, search.n_rows) for search in plan.searches]
        [(200, 300), (400, 300), (300, 300)]
    """
    settings = settings or AuditSettings()
    models = split_models(unlearned, oracle, original, settings)
    try:
        return _plan({name: _main_rows(model) for name, model in models.items()}, settings, workers)
    except InputError:
        check_numbers(models)  # a sample does not know whose rows it holds: this says it
        raise


def _main_rows(model: GivenModel) -> SideRows:
    return list(model.layers.values())[-1]


def _plan(models: Mapping[str, SideRows], settings: AuditSettings, workers: Workers | None) -> AuditPlan:
    searched = [sides for name, sides in models.items() if not name.startswith("oracle")]
    plan_one = plan_search if workers is None else partial(plan_by_blocks, workers=workers)
    searches = tuple(search for sides in searched for search in _plan_searches(sides, settings, plan_one))
    n_passes = {name: sum(rows.nbytes for rows in sides.values()) for name, sides in models.items()}
    return AuditPlan(
        searches,
        bytes_read=sum(search.bytes_read for search in searches) + 2.0 * sum(n_passes.values()),
        memory_bytes=max(search.memory_bytes if isinstance(search, SearchPlan) else np.nan for search in searches),
        reading_s=_time_reading(models),
        testing_s=_time_tests(models, settings),
        workers=workers,
    )


def is_worth_planning(unlearned: Any) -> bool:
    """Whether this audit is long enough for a plan; the model as `audit` takes it."""
    shapes = [np.shape(getattr(part, "values", part)) for part in unlearned]
    n_retain, width = shapes[1]
    work = float(n_retain) * width * max(n_retain / 2, sum(shape[0] for shape in shapes))
    return bool(work > WORTH_PLANNING)


def _plan_searches(
    sides: SideRows, settings: AuditSettings, plan_one: Callable[..., SearchPlan | BlockPlan]
) -> list[SearchPlan | BlockPlan]:
    retain = sides["retain"]
    plans = [plan_one(rows, retain) for side, rows in sides.items() if side != "retain"]
    n = settings.n_reference
    if n is None or n >= len(retain):
        return [*plans, plan_one(retain, retain, exclude_self=True)]
    drawn = np.sort(np.random.default_rng(settings.seed).integers(0, len(retain), n))
    return [*plans, plan_one(retain[drawn], retain, k=2)]


def _time_reading(models: Mapping[str, SideRows]) -> float:
    """Seconds to check and hash all rows, and to compare models with each other."""
    rows = models["unlearned"]["retain"]
    n_block = block_rows_for(rows.shape[1])
    starts = np.linspace(0, max(0, len(rows) - n_block), _PILOT_READS).astype(np.int64)
    blocks = [np.asarray(rows[start : start + n_block]) for start in starts]
    n_sampled = sum(map(len, blocks))

    def time_rows(work: Callable[[Any], Any]) -> float:
        started_s = time.perf_counter()
        for block in blocks:
            work(block)
        return (time.perf_counter() - started_s) / n_sampled

    n_rows = sum(len(part) for part in models["unlearned"].values())
    once_s = time_rows(lambda block: (np.array(block), measure_norms(block, "rows"), hash_rows(block)))
    # the oracle meets the others for scores and once more for their pairing; every two models, to see if they are one
    n_pairs = len(models) * ("oracle" in models) + len(list(combinations(models, 2)))
    pair_s = time_rows(lambda block: compare_rows(block, block, ("rows", "rows"))) if n_pairs else 0.0
    return n_rows * (len(models) * once_s + n_pairs * pair_s)


def _time_tests(models: Mapping[str, SideRows], settings: AuditSettings) -> float:
    """Seconds of all permutations, from a few of them on at most 20,000 random scores."""
    sizes = {side: len(rows) for side, rows in models["unlearned"].items()}
    if "held_out" not in sizes:
        return 0.0
    n_records = sizes["forget"] + sizes["held_out"]
    share = min(1.0, _PILOT_RECORDS / n_records)
    n_first = max(2, int(share * sizes["forget"]))
    scores = np.random.default_rng(0).random((1, n_first + max(2, int(share * sizes["held_out"]))))
    started_s = time.perf_counter()
    compare_families(scores, n_first, [0], n_permutations=_PILOT_DRAWS, alpha=1e-9)
    each_s = (time.perf_counter() - started_s) / _PILOT_DRAWS * settings.n_permutations
    n_scores = 2 * (2 + 2 * ("oracle" in models)) * (1 + ("original" in models))  # place and spread of every contrast
    return float(n_scores * each_s * n_records / scores.shape[1])
