"""Values a record, for the plots of a report."""

import numpy as np

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Distributions
from ruler.core.types import FloatArray
from ruler.metrics.percentile_rank import rank_within

_RANK_EDGES = np.linspace(0.0, 1.0, 21)


def collect_distributions(evidence: Evidence) -> Distributions:
    """Similarities and ranks by side; long sides are thinned to a random sample."""
    rng = np.random.default_rng(evidence.settings.seed)

    def thin(values: FloatArray) -> FloatArray:
        most = evidence.settings.n_plotted
        return values if len(values) <= most else values[np.sort(rng.choice(len(values), most, replace=False))]

    nearest = {side: found.similarity[:, 0] for side, found in evidence.nearest["unlearned"].items()}
    ranks = {side: rank_within(one, nearest["retain"]) for side, one in nearest.items() if side != "retain"}
    to_oracle = evidence.oracle_scores["unlearned"].by_side if evidence.has_oracle else {}
    return Distributions(
        oracle_similarity={side: thin(one) for side, one in to_oracle.items()},
        nearest_similarity={side: thin(one) for side, one in nearest.items()},
        rank_edges=_RANK_EDGES,
        rank_counts={side: np.histogram(one, _RANK_EDGES)[0].astype(np.float64) for side, one in ranks.items()},
    )
