"""Scores to inference: contrasts with a control, equivalence, mixed model, signed-rank tests, corrected families."""

from ruler.stats.comparisons import Comparison, compare_methods
from ruler.stats.conformal import conformal_p_values
from ruler.stats.equivalence import count_needed, equivalence_p_value, minimum_detectable_effect
from ruler.stats.mixed_model import MixedModelFit, fit_random_intercept
from ruler.stats.multiplicity import adjust_p_values
from ruler.stats.permutation import Contrast, compare_samples
from ruler.stats.placebo import compare_with_placebos
from ruler.stats.samples import average_by_group
from ruler.stats.units import Units, find_units
from ruler.stats.wilcoxon import WilcoxonResult, paired_signed_rank, signed_rank, signed_rank_of_means

__all__ = [
    "Comparison",
    "Contrast",
    "MixedModelFit",
    "Units",
    "WilcoxonResult",
    "adjust_p_values",
    "average_by_group",
    "compare_methods",
    "compare_samples",
    "compare_with_placebos",
    "conformal_p_values",
    "count_needed",
    "equivalence_p_value",
    "find_units",
    "fit_random_intercept",
    "minimum_detectable_effect",
    "paired_signed_rank",
    "signed_rank",
    "signed_rank_of_means",
]
