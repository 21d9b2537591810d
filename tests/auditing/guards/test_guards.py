"""All guards together: each of the table is run, and none speaks on sound evidence."""

import numpy as np
import pytest
from tests.auditing.guards.cases import (
    N_FORGET,
    N_HELD_OUT,
    N_RETAIN,
    WIDTH,
    cut,
    guards_of,
    make_models,
    names_of,
    shift,
)

from ruler.auditing import guards
from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards import GUARDS
from ruler.core.types import Embeddings


def test_sound_evidence_gives_no_finding(models):
    assert guards_of(models) == []


SOUND_KINDS = ("gaussian", "relu", "discrete", "grouped", "placebo", "few", "wide", "one_model", "float32", "named")


def make_sound(kind, seed):
    """Arguments of an audit without a fault, of this kind."""
    rng = np.random.default_rng([SOUND_KINDS.index(kind), seed])
    sizes = (30, 60, 100) if kind == "few" else (N_FORGET, N_RETAIN, N_HELD_OUT)
    if kind == "discrete":
        levels = rng.integers(2, 5)
        inputs = rng.integers(0, levels, size=(sum(sizes), 4)).astype(float)
    else:
        inputs = rng.normal(size=(sum(sizes), 10))
    if kind == "grouped":
        inputs = np.repeat(inputs[::2], 2, axis=0) + 0.1 * rng.normal(size=inputs.shape)
    if kind == "gaussian":
        base = rng.normal(size=(sum(sizes), WIDTH))
        rows = {m: base + 0.1 * rng.normal(size=base.shape) for m in ("unlearned", "oracle", "original")}
    else:
        rows = make_models(rng, inputs, width=96 if kind == "wide" else WIDTH)
    if kind == "float32":
        rows = {name: value.astype(np.float32) for name, value in rows.items()}
    models = {name: cut(value, sizes) for name, value in rows.items()}
    options = {}
    if kind == "placebo":
        models = {name: sides[:2] for name, sides in models.items()}
    if kind == "one_model":
        models = {"unlearned": models["unlearned"]}
    if kind == "grouped":
        labels = cut(np.arange(sum(sizes)) // 2 * 7)
        options["groups"] = dict(zip(("forget", "retain", "held_out"), labels, strict=True))
    if kind == "named":
        names = cut(rng.permutation(sum(sizes)), sizes)
        models = {m: tuple(map(Embeddings, sides, names)) for m, sides in models.items()}
    return models, options


@pytest.mark.parametrize("kind", SOUND_KINDS)
def test_all_guards_are_silent_on_sound_inputs(kind):
    for seed in range(10):  # ten kinds, a hundred inputs
        models, options = make_sound(kind, seed)
        assert guards_of(models, **options) == []


def test_the_gravest_finding_comes_first(models):
    models["oracle"] = models["original"]
    small = {name: (sides[0][:1], sides[1], sides[2][:9]) for name, sides in models.items()}
    assert [severity for _, severity in names_of(small)] == ["fail", "warn"]


def test_every_guard_of_the_table_is_run(models):
    evidence = gather_evidence(models["unlearned"])
    assert len(GUARDS) == len(set(GUARDS)) == 13
    assert all(list(guard(evidence)) == [] for guard in GUARDS)


def test_the_gravest_come_first(models):
    models["oracle"] = models["original"]  # fails
    repeated = {"forget": [0, 0, *range(2, N_FORGET)]}  # warns, by a guard that comes before
    found = [finding.severity for finding in guards_of(models, ids=repeated)]
    assert found[0] == "fail"
    assert found == sorted(found, key=["fail", "warn", "note"].index)
    assert "warn" in found


def test_a_warning_comes_before_the_note_of_an_earlier_guard(models, random, monkeypatch):
    moved = {name: [part.values for part in sides] for name, sides in shift(models, 8.0).items()}
    oracles = [tuple(part + 0.01 * random.normal(size=part.shape) for part in moved["oracle"]) for _ in range(5)]
    moved["oracle"] = oracles
    moved["original"] = moved["unlearned"]  # warns: nothing was unlearned
    evidence = gather_evidence(moved.pop("unlearned"), **moved)
    monkeypatch.setattr(guards, "GUARDS", GUARDS[::-1])
    assert [finding.severity for finding in guards.run_guards(evidence)] == ["warn", "note"]
