"""Embeddings and predictions to scores: the paper's M1 to M4, one number per record and their aggregates."""

from ruler.metrics.paper import (
    all_metrics,
    calibration_gap,
    cosine_similarity,
    m1,
    m2,
    m3,
    m4,
    oracle_similarity,
    percentile_rank,
    representation_shift,
)

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
