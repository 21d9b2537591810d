"""Values per record, for the plots of a report."""

from collections.abc import Mapping

import numpy as np

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Distributions
from ruler.auditing.measure import Measurement
from ruler.auditing.privacy import trace_roc
from ruler.core.types import FloatArray
from ruler.metrics.paper import rank_within

_RANK_EDGES = np.linspace(0.0, 1.0, 21)


def collect_distributions(evidence: Evidence, found: Mapping[str, Measurement]) -> Distributions:
    """Scores by contrast and side, ROC curves and ranks; long sides are thinned to a random sample."""
    rng = np.random.default_rng(evidence.settings.seed)

    def thin(values: FloatArray) -> FloatArray:
        most = evidence.settings.n_plotted
        return values if len(values) <= most else values[np.sort(rng.choice(len(values), most, replace=False))]

    shown: dict[str, dict[str, FloatArray]] = {}
    for name, one in found.items():
        if one.contrast.decides:
            layer = one.place.layer if one.strands else list(one.scores)[-1]
            shown[name] = {str(side): thin(values) for side, values in one.scores[layer].items()}
    nearest = found["m4"].scores[evidence.main_layer]
    ranks = {side: rank_within(own, nearest["retain"]) for side, own in nearest.items() if side != "retain"}
    return Distributions(
        scores=shown,
        roc=trace_roc(found),
        rank_edges=_RANK_EDGES,
        rank_counts={side: np.histogram(one, _RANK_EDGES)[0].astype(np.float64) for side, one in ranks.items()},
    )
