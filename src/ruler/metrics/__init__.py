"""Embeddings and predictions to scores: the paper's M1-M4, one number a record and their aggregates."""

from ruler.metrics.calibration_gap import calibration_gap, m2
from ruler.metrics.oracle_similarity import cosine_similarity, m1, oracle_similarity
from ruler.metrics.percentile_rank import m4, percentile_rank
from ruler.metrics.representation_shift import m3, representation_shift
from ruler.metrics.together import all_metrics

__all__ = [
    "all_metrics",
    "calibration_gap",
    "cosine_similarity",
    "m1",
    "m2",
    "m3",
    "m4",
    "oracle_similarity",
    "percentile_rank",
    "representation_shift",
]
