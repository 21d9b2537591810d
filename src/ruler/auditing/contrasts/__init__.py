"""The table of contrasts: to add one of ours, write it and add it to `OWN`.

Users add theirs without editing this package: by an entry point of the group "ruler.metrics" that names a `Contrast`,
or by ``CONTRASTS.register(name, contrast)``. Audits measure and report all of them; the paper's studies keep to `OWN`.
"""

from collections.abc import Iterable, Mapping

from ruler.auditing.contrasts.contrast import Contrast, Score, SideScores
from ruler.auditing.contrasts.loss import LOSS, RELEARNED
from ruler.auditing.contrasts.nearest import M4
from ruler.auditing.contrasts.oracle import M1, M2, M3, NORM
from ruler.auditing.contrasts.readout import READOUT
from ruler.auditing.contrasts.tangent import TANGENT
from ruler.core.registry import Registry

OWN: dict[str, Contrast] = {
    "loss": LOSS,
    "readout": READOUT,
    "tangent": TANGENT,
    "relearned": RELEARNED,
    "m1": M1,
    "m2": M2,
    "m3": M3,
    "m4": M4,
    "norm": NORM,
}
CONTRASTS: Registry[Contrast] = Registry("metric", OWN, group="ruler.metrics", type=Contrast)


def list_deciding(names: Iterable[str], contrasts: Mapping[str, Contrast] = CONTRASTS) -> list[str]:
    """Those of the measured contrasts that have a part in the verdict.

    Example:
        >>> list_deciding(["m1", "loss", "tangent"]), list_deciding(["loss", "tangent", "readout"])
        (['loss', 'tangent'], ['loss', 'readout'])
    """
    known = list(names)
    return [name for name in known if contrasts[name].decides and contrasts[name].unless not in known]


__all__ = ["CONTRASTS", "OWN", "Contrast", "Score", "SideScores", "list_deciding"]
