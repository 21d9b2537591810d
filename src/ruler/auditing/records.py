"""Which forget records, and which erasure requests, stand out from the control?"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, IndexArray
from ruler.metrics.percentile_rank import rank_within
from ruler.stats.conformal import conformal_p_values
from ruler.stats.multiplicity import adjust_p_values

if TYPE_CHECKING:
    import pandas as pd

ALIKE = "like the control"
FAR_FROM_ORACLE = "further from the oracle than the control"
APART = "further from retain records than the control"
NEAR = "nearer to retain records than the control"


def tabulate_records(evidence: Evidence) -> "pd.DataFrame":
    """One row a forget record, in the order given.

    p-values are conformal. Similarity to the oracle counts when it is low: the oracle never saw the record, so that
    memory can only lead away from it. Similarity to the nearest retain record counts on both sides, for records
    memorised as exceptions stand apart. The record's p-value is the first, or without an oracle the second; q-values
    are Benjamini-Hochberg's over all records.
    """
    pandas = load_optional("pandas", "listing the records of an audit")
    nearest = evidence.nearest["unlearned"]
    to_retain, control = (nearest[side].similarity[:, 0] for side in ("forget", evidence.control))
    n = len(to_retain)
    columns: dict[str, Any] = {
        "id": evidence.ids["forget"],
        "group": evidence.groups.get("forget", np.full(n, None)),
        **_compare_with_oracle(evidence),
        "nearest_similarity": to_retain,
        "nearest_retain": evidence.ids["retain"][nearest["forget"].index[:, 0]],
        "percentile_rank": rank_within(to_retain, nearest["retain"].similarity[:, 0]),
        "nearest_p_value": conformal_p_values(to_retain, control),
    }
    columns["p_value"] = columns["oracle_p_value" if evidence.has_oracle else "nearest_p_value"]
    columns["q_value"] = adjust_p_values(columns["p_value"])
    is_flagged = columns["q_value"] <= evidence.settings.alpha
    columns["finding"] = _name_findings(evidence, to_retain, np.median(control), is_flagged)
    table: pd.DataFrame = pandas.DataFrame(columns)
    return table


def tabulate_groups(evidence: Evidence, records: "pd.DataFrame") -> "pd.DataFrame | None":
    """One row a group of the forget records, an erasure request each; None without groups.

    The group's mean is compared with the means of the control's groups. Where the control has none, the records of the
    group are permuted with the control's, which takes them to be unlike each other: likeness inside a group makes
    the p-value too small.
    """
    if "forget" not in evidence.groups:
        return None
    score = "oracle_similarity" if evidence.has_oracle else "nearest_similarity"
    table = records.groupby("group", sort=False).agg(
        n_records=("id", "size"),
        oracle_similarity=("oracle_similarity", "mean"),
        nearest_similarity=("nearest_similarity", "mean"),
        shift=("shift", "mean"),
        n_flagged=("finding", lambda found: int((found != ALIKE).sum())),
    )
    control, _ = _control_scores(evidence)
    judge = _make_group_judge(evidence)
    table["p_value"] = records.groupby("group", sort=False)[score].agg(lambda own: judge(own.to_numpy()))
    means = table[score].to_numpy()
    table["q_value"] = adjust_p_values(table["p_value"].to_numpy())
    is_flagged = (table["q_value"] <= evidence.settings.alpha).to_numpy()
    table["finding"] = _name_findings(evidence, means, control.mean(), is_flagged)
    return table.reset_index()


def _compare_with_oracle(evidence: Evidence) -> dict[str, FloatArray]:
    missing = np.full(len(evidence.ids["forget"]), np.nan)
    if not evidence.has_oracle:
        return dict.fromkeys(("oracle_similarity", "oracle_gap", "shift", "oracle_p_value"), missing)
    scores = evidence.oracle_scores
    similarity = scores["unlearned"].by_side["forget"]
    return {
        "oracle_similarity": similarity,
        "oracle_gap": similarity - np.median(scores["unlearned"].by_side["retain"]),
        "shift": similarity - scores["original"].by_side["forget"] if evidence.has_original else missing,
        "oracle_p_value": conformal_p_values(similarity, _oracle_control(evidence), tail="low"),
    }


def _oracle_control(evidence: Evidence) -> FloatArray:
    return evidence.oracle_scores["unlearned"].by_side[evidence.control]


def _control_scores(evidence: Evidence) -> tuple[FloatArray, npt.NDArray[Any] | None]:
    labels = evidence.groups.get(evidence.control)
    if not evidence.has_oracle:
        return evidence.nearest["unlearned"][evidence.control].similarity[:, 0], labels
    if labels is not None and not evidence.has_held_out:
        labels = labels[evidence.oracle_scores["unlearned"].retain_rows]
    return _oracle_control(evidence), labels


def _make_group_judge(evidence: Evidence) -> Callable[[FloatArray], float]:
    """Scores of a group -> p-value of their mean among the control's groups, or among random sets of records."""
    control, labels = _control_scores(evidence)
    if labels is not None:
        codes = np.unique(labels, return_inverse=True)[1]
        means = np.bincount(codes, weights=control) / np.bincount(codes)
        return lambda own: float(conformal_p_values([own.mean()], means, tail=_tail(evidence))[0])

    @cache
    def draw_sets(size: int) -> IndexArray:
        rng, n_draws = np.random.default_rng(evidence.settings.seed), evidence.settings.n_permutations
        return np.array([rng.choice(len(control) + size, size, replace=False) for _ in range(n_draws)])

    def judge(own: FloatArray) -> float:
        if len(own) == 1:
            return float(conformal_p_values(own, control, tail=_tail(evidence))[0])
        means = np.concatenate([control, own])[draw_sets(len(own))].mean(axis=1)
        return float(conformal_p_values([own.mean()], means, tail=_tail(evidence))[0])

    return judge


def _tail(evidence: Evidence) -> Literal["low", "both"]:
    return "low" if evidence.has_oracle else "both"


def _name_findings(
    evidence: Evidence, scores: FloatArray, middle: float, is_flagged: npt.NDArray[np.bool_]
) -> list[str]:
    if evidence.has_oracle:
        return [FAR_FROM_ORACLE if flagged else ALIKE for flagged in is_flagged]
    sides = np.where(scores < middle, APART, NEAR)
    return [str(side) if flagged else ALIKE for side, flagged in zip(sides, is_flagged, strict=True)]
