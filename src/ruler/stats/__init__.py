"""Scores to inference: what remains, contrasts with a control, mixed model, signed-rank tests, corrected families."""

from ruler.stats.auc import Effect, auc_interval, measure_effect
from ruler.stats.mixed_model import MixedModelFit, fit_random_intercept
from ruler.stats.p_values import adjust_p_values, conformal_p_values
from ruler.stats.samples import average_by_group
from ruler.stats.wilcoxon import (
    Comparison,
    WilcoxonResult,
    compare_methods,
    paired_signed_rank,
    signed_rank,
    signed_rank_of_means,
)

__all__ = [
    "Comparison",
    "Effect",
    "MixedModelFit",
    "WilcoxonResult",
    "adjust_p_values",
    "auc_interval",
    "average_by_group",
    "compare_methods",
    "conformal_p_values",
    "fit_random_intercept",
    "measure_effect",
    "paired_signed_rank",
    "signed_rank",
    "signed_rank_of_means",
]
