"""The table of contrasts: to add one, write its file and add it here."""

from ruler.auditing.contrasts.contrast import Contrast
from ruler.auditing.contrasts.loss import LOSS
from ruler.auditing.contrasts.nearest import M4
from ruler.auditing.contrasts.norm import NORM
from ruler.auditing.contrasts.oracle_similarity import M1, M2
from ruler.auditing.contrasts.shift import M3

CONTRASTS: dict[str, Contrast] = {contrast.name: contrast for contrast in (M1, M2, M3, M4, NORM, LOSS)}

__all__ = ["CONTRASTS", "Contrast"]
