"""Audits of which the truth is known, for tests of several steps of an audit."""

from dataclasses import replace

import numpy as np

from ruler.auditing import AuditSettings, audit_evidence, gather_evidence

FAST = AuditSettings(n_permutations=199)
QUICK = AuditSettings(n_permutations=99)
ROWS = np.random.default_rng(0).normal(size=(30, 3))
SOUND = (ROWS[:5], ROWS[5:20], ROWS[20:])
DECIDING = ("loss", "tangent", "m2", "m4", "norm")
"""Contrasts with a part in the verdict, of models with losses and without classes."""


def make_cleared(build_world, seed=0, **options):
    """Arguments of an audit that earns 'erased': nothing is left of what the original shows."""
    world = build_world(seed, **options)
    unlearned, oracle = world.model(gain=0.0), world.model(gain=0.0)
    return {"unlearned": unlearned, "oracle": oracle, "original": world.model(0.5, gain=1.0), "settings": FAST}


def strip(model, *names):
    """A model without its losses, or whatever else stands beside the rows."""
    return tuple(replace(part, **dict.fromkeys(names)) for part in model)


def make_class(build_world, seed, n_oracles, **memory):
    """A forget set of one class, which lies apart in every model."""
    world = build_world(seed)
    world.base[:150, 0] += 1.0
    world.labels[:150] = 2
    oracles = [world.model(gain=0.0, labels=world.labels) for _ in range(n_oracles)]
    return {
        "unlearned": world.model(**{"gain": 0.0} | memory, labels=world.labels),
        "oracle": oracles if n_oracles > 1 else oracles[0],
        "original": world.model(0.5, gain=1.0, labels=world.labels),
        "settings": FAST,
    }


def score_peak(model, oracles):
    """A metric of one's own."""
    return {side: np.abs(rows).max(axis=1) for side, rows in model.rows.items()}


def run_audit(model, table, **options):
    """An audit by another table of contrasts."""
    return audit_evidence(gather_evidence(model, settings=QUICK, **options), contrasts=table)
