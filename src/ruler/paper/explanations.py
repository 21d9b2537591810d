"""Known reasons why a number may differ from the published one, each stated only where it applies."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ruler.paper.names import DIAGNOSTIC_STUDIES, TABULAR_STUDIES
from ruler.paper.tables.controls import compute_face_controls
from ruler.paper.tables.diagnostics import tell_size

if TYPE_CHECKING:
    import pandas as pd

OTHER_ENCODER, FEWER_ROWS = "another language model", "fewer rows"
OTHER_THAN_IDENTITIES, UNTESTED_IDENTITIES = (
    "placebo sets leave out the paper's M4",
    "placebo sets allow the paper's M4",
)
_PAPER_ENCODER = "ClinicalBERT"
_BORDER = (0.02, 0.12)
_DRAW_REACH = 0.001  # twice what the draw was seen to move M2 on one dataset
_SMALL_SETS = ("breast_cancer", "heart_disease", "german_credit", "wine_quality")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Explanation:
    """A reason and where it applies.

    Args:
        text: The reason, a full sentence.
        columns: Columns it can explain, as patterns.
        tables: Tables it can explain; all when empty.
        applies: What else must be true of the row of the comparison.
        trait: Only for numbers of runs with this trait, see ``find_traits``; any when empty.
        studies: Studies it can explain; all when empty.
    """

    text: str
    columns: tuple[str, ...]
    tables: tuple[str, ...] = ()
    applies: Callable[[Row], bool] = lambda row: True
    trait: str = ""
    studies: tuple[str, ...] = ()

    def holds_for(self, row: Row, traits: frozenset[str]) -> bool:
        """Whether this reason applies to a row of the comparison whose runs have these traits."""
        if self.tables and row["table"] not in self.tables:
            return False
        if self.studies and row["study"] not in self.studies:
            return False
        if self.trait and self.trait not in traits:
            return False
        return any(fnmatchcase(row["column"], pattern) for pattern in self.columns) and self.applies(row)


def _is_borderline(row: Row) -> bool:
    low, high = _BORDER
    return any(low <= value <= high for value in (row["paper"], row["ours"]))


def _is_at_main_fraction(row: Row) -> bool:
    return bool(row["forget_fraction"] == 0.05)


def _is_undefined_in_paper(row: Row) -> bool:
    return math.isnan(row["paper"])


EXPLANATIONS = (
    Explanation(
        "One of the two p-values lies near 0.05, where a small change of the data decides the side.",
        columns=("*_p_*",),
        applies=_is_borderline,
    ),
    Explanation(
        "The paper's mixed model was singular; ours, fitted by its exact likelihood, was not.",
        columns=("*_p_mixed",),
        applies=_is_undefined_in_paper,
    ),
    Explanation(
        "M2 subtracts the median over 500 retain records, and the paper's draw of these could not be identified: "
        "on one dataset that alone moves M2 by up to 0.0005.",
        columns=("m2_mean", "m2_seed_sd", "m2_baseline_shift"),
        studies=TABULAR_STUDIES,
        applies=lambda row: abs(row["difference"]) <= _DRAW_REACH,
    ),
    Explanation(
        "Values of M2 near zero change sign with the 500 retain records it is measured against, and the paper's draw "
        "of these could not be identified.",
        columns=("m2_rank_biserial*", "m2_n_*", "n_holds"),
    ),
    Explanation(
        "At 5% the paper's own M4 differs by 0.003 to 0.004 between Tables 1, 10, 11 and Tables 7, 8 on the same "
        "ten datasets: it is not of one run.",
        columns=("m4_*",),
        tables=("1", "10", "11"),
        applies=_is_at_main_fraction,
    ),
    Explanation(
        "Wine Quality holds many identical rows: 13 of 63 forget rows have a twin among the retain rows. Here twins "
        "tie exactly, and <= gives them the top rank. In single-precision products the similarity of twins "
        "scatters around 1, which breaks the ties by chance: that gives the paper's 0.50 to 0.51.",
        columns=("m4_*", "n_holds"),
        applies=lambda row: bool(row["dataset"] == "wine_quality"),
    ),
    Explanation(
        "SCRUB's loss is not spelled out in the paper; ours is the form that came nearest to its tables.",
        columns=("m*", "*_accuracy_*", "n_holds"),
        applies=lambda row: "scrub" in (row["method"], row["other_method"]),
    ),
    Explanation(
        "Bad Teacher's loss is not spelled out in the paper; ours is the form that came nearest to its tables.",
        columns=("m*",),
        applies=lambda row: "bad_teacher" in (row["method"], row["other_method"]),
    ),
    Explanation(
        "With 10 to 63 forget records a membership accuracy moves in steps of 0.008 to 0.05 a record.",
        columns=("mia_*",),
        applies=lambda row: row["dataset"] in _SMALL_SETS,
    ),
    Explanation(
        "The order of mini batches is not stated in the paper, and the retrained oracle's differs from the original's: "
        "that noise is what this study is about.",
        columns=("*",),
        tables=("6",),
    ),
    Explanation(
        "The paper states one ICC for M4 and not the fit it comes from; ours is the mean over the twelve conditions.",
        columns=("m4_icc",),
        applies=lambda row: bool(row["study"] == "primary"),
    ),
    Explanation(
        "The ensemble engine draws its dropout masks from other random streams than the paper's loop: a run with "
        "the same seed is another run, as with another seed.",
        columns=("*",),
        trait="ensemble",
    ),
    Explanation(
        "The paper leaves most settings of this study open: architecture details, epochs, optimiser, learning rates, "
        "augmentation, and those of unlearning. Ours were chosen for sane accuracies, not for the paper's M4.",
        columns=("*",),
        studies=DIAGNOSTIC_STUDIES,
    ),
    Explanation(
        "Higgs is smaller here than the paper's 100,000 rows: 51,233 genuine ones, pooled from public subsets, were at "
        "hand.",
        columns=("*",),
        studies=("large-tabular",),
        applies=lambda row: bool(row["dataset"] == "higgs"),
        trait=FEWER_ROWS,
    ),
    Explanation(
        "CIFAR-100: the split of our images into training and test is not the official one.",
        columns=("*",),
        studies=("images",),
        applies=lambda row: row["dataset"] in ("cifar100", ""),
    ),
    Explanation(
        "SVHN: our digits were cropped anew from the full photos; they are not the official crops.",
        columns=("*",),
        studies=("images",),
        applies=lambda row: row["dataset"] in ("svhn", ""),
    ),
    Explanation(
        "The forgotten identities are not the paper's, which it does not name, and with so few M4 depends on which "
        "they are.",
        columns=("*",),
        studies=("faces",),
        trait=UNTESTED_IDENTITIES,
    ),
    Explanation(
        "The forgotten identities are not the paper's, which it does not name. M4 depends on which they are, but that "
        "alone does not explain the paper's M4 before unlearning: in this setting it lies beyond the range of 95% of "
        "placebo sets at every fraction (Face controls).",
        columns=("*",),
        studies=("faces",),
        trait=OTHER_THAN_IDENTITIES,
    ),
    Explanation(
        "The language model is not Bio_ClinicalBERT but the one named with the study. Where its files hold no trained "
        "head for masked words, as those of all-MiniLM-L6-v2 do not, the whole model was first trained on text that is "
        "in neither the forget nor the retain set.",
        columns=("*",),
        studies=("clinical",),
        trait=OTHER_ENCODER,
    ),
)


def find_traits(runs: "pd.DataFrame") -> frozenset[str]:
    """What of these runs a reason may rest on: their engines, another language model, fewer rows, placebo sets.

    Example:
        >>> import pandas
        >>> columns = {"engine": ["protocol"], "model": ["my-encoder"], "dataset": ["mtsamples"]}
        >>> sorted(find_traits(pandas.DataFrame(columns)))
        ['another language model', 'protocol']
    """
    found = set(runs["engine"].astype(str))
    models = runs["model"].dropna().astype(str)
    if len(models) and not models.str.contains(_PAPER_ENCODER, case=False).any():
        found.add(OTHER_ENCODER)
    higgs = runs[runs["dataset"] == "higgs"]
    if tell_size("higgs", higgs):
        found.add(FEWER_ROWS)
    if "study" in runs and (runs["study"] == "faces").any():
        answers = [number.value for number in compute_face_controls(runs) if number.column == "m4_placebo_holds_paper"]
        is_whole = "size" not in runs or (runs.loc[runs["study"] == "faces", "size"] != "smoke").all()
        is_beyond = is_whole and bool(answers) and not any(answer or math.isnan(answer) for answer in answers)
        found.add(OTHER_THAN_IDENTITIES if is_beyond else UNTESTED_IDENTITIES)
    return frozenset(found)


def explain(row: Row, traits: frozenset[str]) -> list[str]:
    """Every known reason for the difference in a row of the comparison.

    Example:
        >>> row = {"table": "1", "column": "m2_p_mixed", "paper": 0.045, "ours": 0.051}
        >>> row |= {"method": "fine_tuning", "other_method": "", "dataset": "", "forget_fraction": 0.05, "study": ""}
        >>> explain(row, frozenset({"protocol"}))
        ['One of the two p-values lies near 0.05, where a small change of the data decides the side.']
    """
    return [entry.text for entry in EXPLANATIONS if entry.holds_for(row, traits)]
