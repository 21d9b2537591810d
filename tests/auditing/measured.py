"""Measured contrasts made by hand, whose effects are known."""

import math
from dataclasses import replace

import numpy as np
from scipy.stats import norm

from ruler.auditing.contrasts import CONTRASTS
from ruler.auditing.findings import Sensitivity
from ruler.auditing.measure import Measurement
from ruler.auditing.settings import AuditSettings
from ruler.auditing.strands import Strand

SETTINGS = AuditSettings()
N, M = 400, 800


def make_scores(auc, n=N, m=M, widen=1.0):
    """Scores of a first and a second sample whose AUC is this one; the first may be wider than the second."""
    first, second = (norm.ppf((np.arange(size) + 0.5) / size) for size in (n, m))
    return np.concatenate([widen * first + norm.ppf(auc) * math.hypot(1, widen), second])


def measure(now=0.5, before=None, *, name="m2", spread=0.5, p_value=0.9, seen=None, layer=""):
    """A measured contrast whose place has the AUC ``now``; ``seen`` gives the p-value of the positive control."""
    strands = [
        Strand(
            layer,
            part,
            N,
            make_scores(now if part == "place" else spread),
            None if before is None else make_scores(before if part == "place" else 0.5),
            None,
        )
        for part in ("place", "spread")
    ]
    contrast = CONTRASTS[name]
    found = Measurement(contrast, {layer: {}}, strands, "permutation", p_value, p_value, None, None)
    if seen is None:
        return found
    share = strands[0].share(SETTINGS.alpha) if seen <= SETTINGS.alpha else None
    is_seen = share is not None
    return replace(found, sensitivity=Sensitivity("original", before, seen, is_seen, is_seen), share=share)


SEEN = {"m2": measure(0.5, 0.9, seen=0.001), "m4": measure(name="m4", before=0.5, seen=0.9)}
