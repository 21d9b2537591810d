"""Scores to inference: mixed model, signed-rank tests, corrected families of comparisons."""

from ruler.stats.comparisons import Comparison, compare_methods
from ruler.stats.mixed_model import MixedModelFit, fit_random_intercept
from ruler.stats.multiplicity import adjust_p_values
from ruler.stats.samples import average_by_group
from ruler.stats.wilcoxon import WilcoxonResult, paired_signed_rank, signed_rank, signed_rank_of_means

__all__ = [
    "Comparison",
    "MixedModelFit",
    "WilcoxonResult",
    "adjust_p_values",
    "average_by_group",
    "compare_methods",
    "fit_random_intercept",
    "paired_signed_rank",
    "signed_rank",
    "signed_rank_of_means",
]
