"""A small audit of a model that remembers, for the tests of seals."""

from dataclasses import replace

import numpy as np

from ruler.auditing import AuditSettings, audit
from ruler.auditing.findings import GuardFinding, Report

QUICK = AuditSettings(n_permutations=99)


def make_audit(n_layers: int = 1, **options) -> Report:
    """With an oracle, the original and a warning."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(420, 6))
    models = {}
    for name, shift in (("unlearned", 0.6), ("oracle", 0.0), ("original", 0.9)):
        layers = []
        for place in range(n_layers):
            moved = rows + 0.1 * random.normal(size=rows.shape)
            forget, retain, held_out = np.split(moved, [60, 300])
            layers.append((forget + shift / (1 + place), retain, held_out))
        sides = [{f"layer {place}": one for place, one in enumerate(side, 1)} for side in zip(*layers, strict=True)]
        models[name] = tuple(sides) if n_layers > 1 else layers[0]
    report = audit(**models, settings=QUICK, **options)
    warned = GuardFinding("imagined", "warn", "Something is odd.", "Look again.")
    return replace(report, guards=[*report.guards, warned])
