"""Tables 10 and 11: Bad Teacher beside the four approximate methods, dataset by dataset."""

import math
from typing import TYPE_CHECKING, Any

from ruler.core.optional import load_optional
from ruler.paper.results import average_seeds, rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise
from ruler.stats import paired_signed_rank

if TYPE_CHECKING:
    import pandas as pd

MAIN_TEACHER_SEED = 100


def gather_five_methods(results: "pd.DataFrame") -> "pd.DataFrame":
    """Runs of the primary study and, with the main teacher, of Bad Teacher; none when that was not run."""
    pandas = load_optional("pandas", "computing the tables")
    teacher = rows_of(results, "bad-teacher", ("bad_teacher",))
    teacher = teacher[teacher["teacher_seed"] == MAIN_TEACHER_SEED]
    if teacher.empty:
        return teacher
    others = rows_of(results, "primary")
    rows: pd.DataFrame = pandas.concat([others, teacher], ignore_index=True) if len(others) else teacher
    return rows


def compute_table_10(results: "pd.DataFrame") -> list[Number]:
    """M2 and M4 tested on dataset means, N = 10 datasets of 10 runs."""
    statistics = ["mean", "p_wilcoxon_datasets", "rank_biserial_datasets"]
    found = []
    for keys, runs in split_by(gather_five_methods(results), "forget_fraction", "method"):
        for metric in ("m2", "m4"):
            found += summarise(runs, metric, statistics, n_paper=100, study="bad-teacher", **keys)
    return found


def compute_table_11(results: "pd.DataFrame") -> list[Number]:
    """M4 of Bad Teacher minus M4 of each method, paired by dataset, N = 10 pairs of 10 runs."""
    found = []
    for fraction, runs in split_by(gather_five_methods(results), "forget_fraction"):
        teacher = runs[runs["method"] == "bad_teacher"]
        for method, other in split_by(runs[runs["method"] != "bad_teacher"], "method"):
            keys = {"study": "bad-teacher", "other_method": "bad_teacher", **fraction, **method}
            found += summarise(other, "m4", ["mean"], n_paper=100, **keys)
            found += _pair_with_teacher(other, teacher, keys)
    return found


def _pair_with_teacher(other: "pd.DataFrame", teacher: "pd.DataFrame", keys: dict[str, Any]) -> list[Number]:
    shared: dict[str, Any] = {"n": len(other) + len(teacher), "n_paper": 200, **keys}
    ours, theirs = average_seeds(other, "m4", "dataset"), average_seeds(teacher, "m4", "dataset")
    common = ours.index.intersection(theirs.index)
    if common.empty:
        note = "no dataset has runs of both methods"
        columns = ("m4_difference", "m4_p_paired")
        return [Number(column=column, value=math.nan, note=note, **shared) for column in columns]
    difference = float((theirs[common] - ours[common]).mean())
    test = paired_signed_rank(theirs[common], ours[common])
    return [
        Number(column="m4_difference", value=difference, **shared),
        Number(column="m4_p_paired", value=test.p_value, note=test.note, **shared),
    ]
