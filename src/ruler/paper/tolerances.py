"""How close counts as agreement, number by number, and why."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal

from ruler.paper.names import DIAGNOSTIC_STUDIES
from ruler.paper.published import load_table

Rule = Literal["within", "significance", "standard_errors", "factor"]
_SIGNIFICANCE = 0.05
_STANDARD_ERRORS = 2.31  # 97.5% of Student's t with 8 degrees of freedom: two means of five
FACTOR = 3.1  # root of 97.5% of F with 4 and 4 degrees of freedom: two standard deviations of five


@dataclass(frozen=True)
class Tolerance:
    """When a number of ours agrees with a published one.

    Args:
        columns: Names of the columns it holds for, as a pattern.
        reason: Why this and not less or more.
        absolute: Largest difference.
        relative: Largest difference as a part of the published number; the larger of the two counts.
        rule: ``within`` those limits; on the same side of the ``significance`` level 0.05; within so many
            ``standard_errors`` of the difference of two means of five runs; within a ``factor`` of the published one.
        tables: Tables it holds for; all when empty.
        studies: Studies it holds for; all when empty.
        max_forget: Only for forget sets of up to this many records.
    """

    columns: str
    reason: str
    absolute: float = 0.0
    relative: float = 0.0
    rule: Rule = "within"
    tables: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    max_forget: int | None = None

    def limit(self, paper: float, standard_error: float = math.nan) -> float:
        """Largest difference from this published number; NaN where it needs a standard error and there is none.

        Example:
            >>> Tolerance("m2_mean", "", absolute=0.0006, relative=0.3).limit(-0.004)
            0.0012
        """
        if self.rule == "standard_errors":
            return _STANDARD_ERRORS * standard_error
        return max(self.absolute, self.relative * abs(paper))

    def __str__(self) -> str:
        if self.rule == "significance":
            return f"same side of {_SIGNIFICANCE}"
        if self.rule == "standard_errors":
            return f"{_STANDARD_ERRORS:g} standard errors"
        if self.rule == "factor":
            return f"factor {FACTOR:g}"
        if self.relative:
            return f"{self.absolute:g} or {self.relative:.0%}"
        return f"{self.absolute:g}" if self.absolute else "exact"


TOLERANCES = (
    Tolerance(
        "*_sd",
        "two standard deviations of five runs from one distribution lie within this factor 95 times of 100",
        rule="factor",
        studies=DIAGNOSTIC_STUDIES,
    ),
    Tolerance(
        "*",
        "two means of five runs from one distribution lie this near 95 times of 100; the standard error is of the "
        "published and our SD, of ours pooled over the method's conditions at the same forget fraction where the paper "
        "gives none (92 times where that is a single condition); settings that the paper leaves open get no further "
        "room",
        rule="standard_errors",
        studies=DIAGNOSTIC_STUDIES,
    ),
    Tolerance(
        "*_p_*",
        "a p-value moves by orders of magnitude with the last digit of its data; its message is the side of 0.05",
        rule="significance",
    ),
    Tolerance(
        "*rank_biserial*",
        "four ranks of ten datasets change it by 0.15; the conventional classes are 0.2 apart",
        absolute=0.15,
    ),
    Tolerance(
        "m2_mean",
        "batch order is not stated and decides M2 here; the paper's p of 0.003 puts the standard error of its mean at "
        "0.002, and this is two of them",
        absolute=0.004,
        tables=("6",),
    ),
    Tolerance(
        "m2_mean",
        "one dataset: the paper's 500-row baseline draw is not known, and moves M2 by up to 0.0005",
        absolute=0.0008,
        relative=0.25,
        tables=("7", "8"),
    ),
    Tolerance(
        "m2_mean",
        "all datasets: the unknown 500-row baseline draws average out in part",
        absolute=0.0006,
        relative=0.30,
    ),
    Tolerance(
        "m2_baseline_shift",
        "a difference of two means that each hold to 0.0006 or 30%",
        absolute=0.0006,
        relative=0.30,
    ),
    Tolerance("m4_mean", "a remark in the text, rounded to about 0.05", absolute=0.025, tables=("text",)),
    Tolerance("m4_mean", "Tables 1 and 7-8 of the paper differ by 0.004 themselves", absolute=0.01),
    Tolerance(
        "m4_difference",
        "half of what M4 is allowed: what a dataset adds to both methods cancels",
        absolute=0.005,
    ),
    Tolerance(
        "mia_mean",
        "up to 20 forget records: one of them that changes sides moves a run by 0.025 to 0.05",
        absolute=0.05,
        tables=("4",),
        max_forget=20,
    ),
    Tolerance(
        "mia_mean",
        "over 20 forget records: one that changes sides moves a run by less than 0.025",
        absolute=0.02,
        tables=("4",),
    ),
    Tolerance("mia_mean", "mean of ten datasets, of which three have 10 to 12 forget records", absolute=0.015),
    Tolerance("*_accuracy_mean", "mean of ten datasets; 1% forget sets hold as few as 10 records", absolute=0.015),
    Tolerance("*_sd", "spread of the same runs as the mean", absolute=0.015, tables=("3",)),
    Tolerance("n_holds", "one learning rate: M2 or M4 may lie at its null", absolute=1, tables=("7", "8")),
    Tolerance("n_forget", "set by the protocol"),
    Tolerance("m2_n_negative", "two of twenty: values near zero change sign with the baseline draw", absolute=2),
    Tolerance(
        "m2_seed_sd",
        "an SD of five values, each uncertain by the baseline draw",
        absolute=0.0006,
        relative=0.30,
    ),
    Tolerance("m4_seed_sd", "an SD of five values that each hold to 0.01", absolute=0.01, relative=0.30),
    Tolerance("m2_n_negative_conditions", "the paper's main claim"),
    Tolerance("m4_n_above_null_conditions", "the paper's main claim"),
    Tolerance("m2_n_datasets_negative_all_teachers", "the paper's main claim"),
    Tolerance("*_n_significant_*", "two of twelve: the published p-values nearest to 0.05 are that many", absolute=2),
    Tolerance("m2_n_positive_conditions", "four of the twelve published means lie within 0.0001 of zero", absolute=4),
    Tolerance("m3_n_datasets_*", "one dataset of ten", absolute=1),
    Tolerance("m2_n_datasets_all_negative", "one dataset of ten", absolute=1),
    Tolerance("m2_n_cells_all_negative", "three of thirty: one value near zero decides a cell", absolute=3),
    Tolerance("m2_n_pairs", "set by the protocol"),
    Tolerance("n_runs", "set by the protocol"),
    Tolerance("m4_icc", "the paper states one value and not the fit it is from", absolute=0.05),
    Tolerance("m4_teacher_variation", "a maximum of thirty ranges", absolute=0.003),
    Tolerance("same_seed_oracle_original_similarity", "mean over datasets", absolute=0.005),
    Tolerance("different_seed_oracle_similarity", "mean over datasets", absolute=0.03),
)


def find_tolerance(number: Mapping[str, Any]) -> Tolerance | None:
    """The first entry that holds for a published number, given by its table, column and keys; None if none does.

    Example:
        >>> number = {"table": "4", "column": "mia_mean", "dataset": "heart_disease", "forget_fraction": 0.01}
        >>> find_tolerance(number).absolute
        0.05
    """
    return next((entry for entry in TOLERANCES if _holds_for(entry, number)), None)


def is_significant(p_value: float, relation: str = "=") -> bool:
    """Whether a p-value, or a printed bound of one, lies under 0.05.

    Example:
        >>> is_significant(0.05, ">"), is_significant(0.001, "<")
        (False, True)
    """
    return p_value < _SIGNIFICANCE or (p_value == _SIGNIFICANCE and relation == "<")


def _holds_for(entry: Tolerance, number: Mapping[str, Any]) -> bool:
    if entry.tables and number["table"] not in entry.tables:
        return False
    if entry.studies and number.get("study") not in entry.studies:
        return False
    if not fnmatchcase(number["column"], entry.columns):
        return False
    return entry.max_forget is None or _count_forget(number) <= entry.max_forget


def _count_forget(number: Mapping[str, Any]) -> float:
    return _forget_set_sizes().get((number["dataset"], number["forget_fraction"]), math.inf)


@lru_cache(maxsize=1)
def _forget_set_sizes() -> dict[tuple[str, float], float]:
    sizes = load_table(9)
    sizes = sizes[sizes["column"] == "n_forget"]
    keys = zip(sizes["dataset"], sizes["forget_fraction"], strict=True)
    return dict(zip(keys, sizes["paper"], strict=True))
