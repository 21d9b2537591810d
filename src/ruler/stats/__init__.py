"""Scores to inference: contrasts with a control, equivalence, mixed model, signed-rank tests, corrected families."""

from ruler.stats.auc import Effect, auc_interval, measure_effect
from ruler.stats.equivalence import count_needed, equivalence_p_value, minimum_detectable_effect
from ruler.stats.hybrid import compare_with_oracles
from ruler.stats.mixed_model import MixedModelFit, fit_random_intercept
from ruler.stats.p_values import adjust_p_values, conformal_p_values
from ruler.stats.permutation import FamilyTest, compare_families
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
    "FamilyTest",
    "MixedModelFit",
    "WilcoxonResult",
    "adjust_p_values",
    "auc_interval",
    "average_by_group",
    "compare_families",
    "compare_methods",
    "compare_with_oracles",
    "conformal_p_values",
    "count_needed",
    "equivalence_p_value",
    "fit_random_intercept",
    "measure_effect",
    "minimum_detectable_effect",
    "paired_signed_rank",
    "signed_rank",
    "signed_rank_of_means",
]
