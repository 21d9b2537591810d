"""The table of contrasts: to add one of ours, write it and add it to `OWN`.

Users add theirs without editing this package: by an entry point of the group "ruler.metrics" that names a `Contrast`,
or by ``CONTRASTS.register(name, contrast)``. Audits measure and report all of them; the paper's studies keep to `OWN`.
"""

from ruler.auditing.contrasts.contrast import Contrast, Score, SideScores
from ruler.auditing.contrasts.loss import LOSS
from ruler.auditing.contrasts.nearest import M4
from ruler.auditing.contrasts.norm import NORM
from ruler.auditing.contrasts.oracle_similarity import M1, M2
from ruler.auditing.contrasts.shift import M3
from ruler.core.registry import Registry

OWN: dict[str, Contrast] = {contrast.name: contrast for contrast in (M1, M2, M3, M4, NORM, LOSS)}
CONTRASTS: Registry[Contrast] = Registry("metric", OWN, group="ruler.metrics", type=Contrast)

__all__ = ["CONTRASTS", "OWN", "Contrast", "Score", "SideScores"]
