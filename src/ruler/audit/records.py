"""Which forget records, and which erasure requests, stand out from the control?"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.audit.evidence import Evidence
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray
from ruler.metrics.percentile_rank import rank_within
from ruler.stats.conformal import conformal_p_values
from ruler.stats.multiplicity import adjust_p_values

if TYPE_CHECKING:
    import pandas as pd

ALIKE = "like the control"
_FINDINGS = {
    "oracle": ("further from the oracle than the control", "nearer to the oracle than the control"),
    "nearest": ("apart from retain records", "nearer to retain records than the control"),
}


def tabulate_records(evidence: Evidence) -> "pd.DataFrame":
    """One row a forget record, in the order given.

    The p-value is conformal and two-sided, for memorised records can stand on either side; it is that of the
    similarity to the oracle, or without an oracle to the nearest retain record. q-values are Benjamini-Hochberg's over
    all records.
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
    kind = "oracle" if evidence.has_oracle else "nearest"
    columns["p_value"] = columns[f"{kind}_p_value"]
    columns["q_value"] = adjust_p_values(columns["p_value"])
    scores, middle = (
        (columns["oracle_similarity"], _oracle_control(evidence)) if evidence.has_oracle else (to_retain, control)
    )
    columns["finding"] = _name_findings(scores, np.median(middle), columns["q_value"] <= evidence.settings.alpha, kind)
    table: pd.DataFrame = pandas.DataFrame(columns)
    return table


def tabulate_groups(evidence: Evidence, records: "pd.DataFrame") -> "pd.DataFrame | None":
    """One row a group of the forget records, an erasure request each; None without groups.

    The group's mean is compared with means of the control's groups, or of as many single control records where the
    control has no groups, which takes the records of a group to be unlike each other.
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
    control, labels = _control_scores(evidence)
    draws = {size: _control_means(control, labels, size, evidence) for size in table["n_records"].unique()}
    means, sizes = table[score].to_numpy(), table["n_records"].to_numpy()
    table["p_value"] = [conformal_p_values([mean], draws[size])[0] for mean, size in zip(means, sizes, strict=True)]
    table["q_value"] = adjust_p_values(table["p_value"].to_numpy())
    is_flagged = (table["q_value"] <= evidence.settings.alpha).to_numpy()
    kind = "oracle" if evidence.has_oracle else "nearest"
    table["finding"] = _name_findings(means, control.mean(), is_flagged, kind)
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
        "oracle_p_value": conformal_p_values(similarity, _oracle_control(evidence)),
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


def _control_means(control: FloatArray, labels: npt.NDArray[Any] | None, size: int, evidence: Evidence) -> FloatArray:
    """Means that a control of this size could have: of its own groups, else of random sets of its records."""
    if labels is not None:
        codes = np.unique(labels, return_inverse=True)[1]
        means: FloatArray = np.bincount(codes, weights=control) / np.bincount(codes)
        return means
    if size == 1:
        return control
    rng = np.random.default_rng(evidence.settings.seed)
    drawn = control[rng.integers(len(control), size=(evidence.settings.n_permutations, size))]
    return np.asarray(drawn.mean(axis=1))


def _name_findings(scores: FloatArray, middle: float, is_flagged: npt.NDArray[np.bool_], kind: str) -> list[str]:
    under, over = _FINDINGS[kind]
    return [
        (under if s < middle else over) if flagged else ALIKE for s, flagged in zip(scores, is_flagged, strict=True)
    ]
