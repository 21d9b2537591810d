import re

import numpy as np
import pytest

from ruler.auditing import AuditSettings
from ruler.auditing.plan import is_worth_planning, plan_audit
from ruler.core.errors import InputError
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings
from ruler.neighbors.blocks import Workers


@pytest.fixture
def model():
    rows = np.random.default_rng(0).normal(size=(3300, 8)).astype(np.float32)
    return tuple(np.split(rows, [100, 3100]))


def test_every_search_of_the_audit_is_planned(model):
    plan = plan_audit(model, oracle=model, original=model)
    assert [(one.n_queries, one.n_rows, one.is_self) for one in plan.searches] == [
        (100, 3000, False),
        (200, 3000, False),
        (3000, 3000, True),
    ] * 2
    assert plan.flops == 2 * 2 * 8 * 3000 * (100 + 200 + 1500)
    assert plan.elapsed_s == sum(one.elapsed_s for one in plan.searches) + plan.reading_s + plan.testing_s
    assert plan.bytes_read > sum(one.bytes_read for one in plan.searches)
    assert plan.memory_bytes == max(one.memory_bytes for one in plan.searches)
    text = str(plan)
    assert text.startswith("plan: about ")
    assert text.count("search ") == 6


def test_a_sampled_reference_takes_the_place_of_the_self_search(model):
    plan = plan_audit(model, settings=AuditSettings(n_reference=500))
    assert [(one.n_queries, one.is_self) for one in plan.searches] == [(100, False), (200, False), (500, False)]


def test_an_oracle_takes_longer_to_read_and_held_out_records_are_tested(model):
    alone = plan_audit(model)
    assert plan_audit(model, oracle=model).reading_s > alone.reading_s
    assert alone.testing_s > 0
    assert plan_audit(model[:2]).testing_s == 0


def test_several_oracles_and_layers_are_planned(model):
    layers = tuple({"first": part, "last": part[:, :4]} for part in model)
    plan = plan_audit(layers, oracle=[layers, layers])
    assert len(plan.searches) >= 3
    assert plan.reading_s > 0


def test_shapes_are_checked_and_shards_taken(model):
    stacked = (model[0], Embeddings(StackedRows(np.array_split(model[1], 3))), model[2])
    assert plan_audit(stacked).flops == plan_audit(model).flops
    with pytest.raises(InputError, match="must have the same shape"):
        plan_audit(model, oracle=(model[0][1:], *model[1:]))


def test_only_long_audits_are_worth_a_plan(model):
    assert not is_worth_planning(tuple(map(Embeddings, model)))
    endless = StackedRows([np.broadcast_to(np.float32(1), (3_000_000, 128))])
    assert is_worth_planning((model[0], Embeddings(endless)))


def test_a_plan_says_in_which_shard_a_row_is_not_finite(model):
    retain = model[1].copy()
    retain[::50] = np.nan  # often enough for any sample to hold one
    shards = StackedRows(np.split(retain, [1, 60]), ["a.npy", "b.npy", "c.npy"])
    with pytest.raises(InputError, match=r"unlearned retain must be finite; .* rows, the first is row 0 of a\.npy"):
        plan_audit((model[0], Embeddings(shards), model[2]))


def test_workers_get_a_plan_of_tasks(model, monkeypatch):
    monkeypatch.setattr("ruler.neighbors.blocks.MOST_ROWS", 1600)
    plan = plan_audit(model, workers=Workers(4, n_threads=2))
    assert [(one.n_queries, one.n_rows, one.is_self) for one in plan.searches] == [
        (100, 3000, False),
        (200, 3000, False),
        (3000, 3000, True),
    ]
    n_tasks = sum(one.n_tasks for one in plan.searches)
    assert n_tasks >= 3 * 16
    assert plan.flops == plan_audit(model).flops
    assert 0 < sum(one.elapsed_s for one in plan.searches) < plan.elapsed_s
    first, *lines = str(plan).splitlines()
    assert re.fullmatch(
        r"plan: about \S+ min if the cluster's cores are as fast as this machine's, \S+ TFLOP, "
        rf"\S+ GB read by {n_tasks} tasks, 4 at a time on 2 cores each",
        first,
    )
    assert len(lines) == 4
    assert lines[-1].endswith(" min, on this machine")


def test_gpus_get_a_plan_without_minutes(model):
    plan = plan_audit(model, workers=Workers(1, device="cuda"))
    assert np.isnan(plan.elapsed_s)
    assert re.match(
        r"plan: \S+ TFLOP, \S+ GB read by 3 tasks, 1 at a time; minutes are not estimated for GPUs\n", str(plan)
    )
