"""What must hold for what remains, whatever the records: order, number type, blocks, threads, units, names."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ruler.auditing import AuditSettings, audit
from ruler.core import checks
from ruler.core.types import Embeddings
from ruler.stats import scale

SIDES = ("forget", "retain", "held_out")
QUICK = AuditSettings(n_permutations=99)


@st.composite
def worlds(draw):
    """Three models of the same records, with losses, labels and perhaps groups."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.integers(2, 25)), draw(st.integers(30, 60)), draw(st.integers(4, 40))
    return make_world(random, sizes, draw(st.booleans()))


def make_world(random, sizes, has_groups=False, width=4):
    n = sum(sizes)
    base, labels, hard = random.normal(size=(n, width)), random.integers(0, 3, size=n), random.normal(size=n)

    def model(memory):
        known = np.repeat([memory, 1.0, 0.0], sizes)
        rows = (base + 0.2 * random.normal(size=base.shape) + known[:, None] * 0.5).astype(np.float32)
        losses = np.exp(0.5 * hard + 0.1 * random.normal(size=n) - known).astype(np.float32)
        beside = {"losses": losses, "labels": labels, "ids": np.arange(n) + 1000}
        if has_groups:
            beside["groups"] = np.arange(n) // 2
        ends = np.cumsum(sizes)[:2]
        parts = [
            dict(zip(beside, one, strict=True))
            for one in zip(*(np.split(v, ends) for v in beside.values()), strict=True)
        ]
        return tuple(Embeddings(row, **part) for row, part in zip(np.split(rows, ends), parts, strict=True))

    return {"unlearned": model(0.3), "oracle": model(0.0), "original": model(1.0), "reference": model(0.0)}


def change(models, how):
    """The same records otherwise: ``how`` takes one side of one model, and its place among the sides."""
    return {name: tuple(how(part, side) for side, part in enumerate(model)) for name, model in models.items()}


def move(part, rows):
    return Embeddings(part.values[rows], **{name: getattr(part, name)[rows] for name in list_beside(part)})


def list_beside(part):
    return [name for name in ("losses", "labels", "ids", "groups") if getattr(part, name, None) is not None]


def say(report):
    """Every number and word that an audit gives, records sorted by name."""
    tables = [report.records.set_index("id").sort_index().drop(columns="nearest_retain").to_csv()]
    if report.groups is not None:
        tables.append(report.groups.set_index("group").sort_index().to_csv())
    return [repr(report.outputs), repr(report.layers), repr(dict(report.metrics)), report.verdict, *tables]


@given(worlds(), st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_records_changes_no_bit(models, seed):
    orders = [np.random.default_rng(seed).permutation(len(part)) for part in models["unlearned"]]
    moved = change(models, lambda part, side: move(part, orders[side]))
    assert say(audit(**moved, settings=QUICK)) == say(audit(**models, settings=QUICK))


@given(worlds())
@settings(max_examples=10, deadline=None)
def test_the_type_of_the_numbers_changes_no_bit(models):
    wide = change(
        models,
        lambda part, side: Embeddings(
            np.asfortranarray(part.values.astype(np.float64)),
            **{name: getattr(part, name) for name in list_beside(part)} | {"losses": part.losses.astype(np.float64)},
        ),
    )
    assert say(audit(**wide, settings=QUICK)) == say(audit(**models, settings=QUICK))


@given(worlds())
@settings(max_examples=6, deadline=None)
def test_the_size_of_blocks_changes_nothing(models):
    plain = audit(**models, settings=QUICK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scale, "_BLOCK_ELEMENTS", 500)
        patch.setattr(checks, "_BLOCK_ELEMENTS", 40)
        cut = audit(**models, settings=QUICK)
    assert cut.verdict == plain.verdict
    for name, one in plain.metrics.items():
        for kind, share in one.remaining.items():
            other = cut.metrics[name].remaining[kind]
            numbers = [[getattr(found, key) for key in ("value", "low", "high")] for found in (share, other)]
            assert numbers[1] == pytest.approx(numbers[0], rel=1e-9, abs=1e-9)
        assert cut.metrics[name].place.p_value == pytest.approx(one.place.p_value, nan_ok=True)


@given(worlds())
@settings(max_examples=10, deadline=None)
def test_the_numbering_of_labels_does_not_matter(models):
    renamed = change(
        models,
        lambda part, side: Embeddings(
            part.values,
            **{name: getattr(part, name) for name in list_beside(part)}
            | {"labels": np.array(["b", "c", "d"])[part.labels]},
        ),
    )
    assert say(audit(**renamed, settings=QUICK)) == say(audit(**models, settings=QUICK))


@given(worlds())
@settings(max_examples=15, deadline=None)
def test_an_interval_holds_its_value_and_one_sided_limits_lie_inside_it(models):
    for one in audit(**models, settings=QUICK).metrics.values():
        for share in one.remaining.values():
            assert share.low <= share.at_least <= share.value <= share.at_most <= share.high
            assert share.visibility >= 0
            assert share.resolution >= 0


@given(worlds())
@settings(max_examples=10, deadline=None)
def test_the_original_itself_holds_all_of_its_trace(models):
    report = audit(**models | {"unlearned": models["original"]}, settings=QUICK)
    assert report.verdict != "erased"
    for one in report.metrics.values():
        if "original" in one.remaining:
            assert one.remaining["original"].value == pytest.approx(1.0)
            assert one.remaining["original"].low <= 1.0 <= one.remaining["original"].high


RUN = """
import json, sys
import numpy as np
from tests.laws.test_audit_laws import AuditSettings, audit, make_world, say
models = make_world(np.random.default_rng(0), (80, 300, 200), True, 24)
print(json.dumps(say(audit(**models, settings=AuditSettings(n_permutations=499)))))
"""


def test_the_number_of_threads_changes_no_bit():
    said = []
    for n in ("1", "2", "4"):
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), n)
        done = subprocess.run(
            [sys.executable, "-c", RUN], capture_output=True, text=True, check=True, env=os.environ | threads
        )
        said.append(json.loads(done.stdout))
    assert said[1] == said[0]
    assert said[2] == said[0]
