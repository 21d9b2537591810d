"""The table of contrasts: to add one of ours, write it and add it to `OWN`.

Users add theirs without editing this package: by an entry point of the group "ruler.metrics" that names a `Contrast`,
or by ``CONTRASTS.register(name, contrast)``. Audits measure and report all of them; the paper's studies keep to `OWN`.
"""

from ruler.auditing.contrasts.contrast import Contrast, Score, SideScores
from ruler.auditing.contrasts.loss import LOSS
from ruler.auditing.contrasts.nearest import M4
from ruler.auditing.contrasts.oracle import M1, M2, M3, NORM
from ruler.core.registry import Registry

OWN: dict[str, Contrast] = {"m1": M1, "m2": M2, "m3": M3, "m4": M4, "norm": NORM, "loss": LOSS}
CONTRASTS: Registry[Contrast] = Registry("metric", OWN, group="ruler.metrics", type=Contrast)

__all__ = ["CONTRASTS", "OWN", "Contrast", "Score", "SideScores"]
