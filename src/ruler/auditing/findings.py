"""What an audit finds: the report and its parts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["erased", "residual", "displaced", "inconclusive", "invalid"]
MetricVerdict = Literal["erased", "residual", "displaced", "inconclusive", "invalid", "descriptive"]
Severity = Literal["fail", "warn", "note"]
Control = Literal["held-out", "placebo", "none"]
Interval = tuple[float, float]


@dataclass(frozen=True)
class GuardFinding:
    """A doubt about the evidence itself.

    Args:
        name: Of the guard, e.g. ``"near_duplicates"``.
        severity: "fail" makes the audit invalid; "warn" and "note" are for the reader.
        message: What was seen, with its numbers.
        cure: What to do about it.
    """

    name: str
    severity: Severity
    message: str
    cure: str


@dataclass(frozen=True)
class MetricFinding:
    """One of the paper's metrics, what its control gives, and whether the two differ.

    Numbers that cannot be computed are NaN or None, and ``reason`` says why.

    Args:
        name: "m1", "m2", "m3" or "m4".
        value: The paper's number.
        interval: Bootstrap interval of ``value``, records (or whole groups) drawn anew.
        null: The same number for the control: what to expect if nothing was remembered.
        difference: ``value - null``.
        difference_interval: Bootstrap interval of the difference.
        effect: AUC: the chance that a forget record lies above a control record, ties counted half; 0.5 is no contrast.
        effect_interval: Bootstrap interval of the AUC.
        p_value: Two-sided, by permutation: are forget and control alike?
        adjusted_p_value: The same after Holm's correction over the metrics that decide the overall verdict.
        equivalence_p_value: Two one-sided tests: is the AUC within ``margin`` of 0.5?
        margin: Largest distance of the AUC from 0.5 that still counts as erased.
        control: Whom the forget records were compared with.
        verdict: "descriptive" where the metric has no part in the verdict (M1, M3).
        reason: One or two sentences for the reader.
        n_forget: Forget records (whole groups, where given) behind the test.
        n_control: Control records (or groups).
        minimum_detectable_effect: Distance of the AUC from 0.5 that the test finds with the set power.
        n_needed: Forget records at which equivalence within the margin would be shown with the set power if it
            were true, the control growing in proportion.
        paper_null: The paper's fixed null, 0 for M2 and M3, 0.5 for M4; None for M1.
        paper_reading: What the paper's rule says of ``value``: its sign alone.
        original_effect: The original model's AUC, where it was given.
        share_left: Part of the original's contrast that is left: 1 all, 0 none, negative turned over.
        share_left_interval: Bootstrap interval of it.
        plain_value: The number without alignment, where aligned ones were used.
        aligned_value: The number with alignment, where it was computed.
        reference_error: How far M4 can be from its value among all retain records, where it was ranked among a sample.
    """

    name: str
    value: float
    interval: Interval
    null: float
    difference: float
    difference_interval: Interval
    effect: float
    effect_interval: Interval
    p_value: float
    equivalence_p_value: float
    margin: float
    control: Control
    verdict: MetricVerdict
    reason: str
    n_forget: int
    n_control: int
    minimum_detectable_effect: float
    n_needed: int | None
    paper_null: float | None
    paper_reading: str
    adjusted_p_value: float = float("nan")
    original_effect: float | None = None
    share_left: float | None = None
    share_left_interval: Interval | None = None
    plain_value: float | None = None
    aligned_value: float | None = None
    reference_error: float | None = None


@dataclass(frozen=True)
class Pairing:
    """Whether oracle and unlearned model share their axes, and what was done about it.

    Args:
        plain_similarity: Median similarity of evaluated retain records to the oracle, as they are.
        aligned_similarity: The same after an orthogonal map fitted on the other retain records; NaN if not fitted.
        is_paired: The plain one is about what pairing gives.
        is_aligned: The aligned similarities were used for M1, M2, M3.
        n_fitted: Retain records that the map was fitted on; 0 if none was.
    """

    plain_similarity: float
    aligned_similarity: float
    is_paired: bool
    is_aligned: bool
    n_fitted: int


@dataclass(frozen=True, eq=False)
class Distributions:
    """Values a record, for plots; sides are "forget", "held_out" (where given) and "retain" (a sample).

    Args:
        oracle_similarity: Similarity to the oracle by side; empty without an oracle.
        nearest_similarity: Similarity to the nearest retain record by side.
        rank_edges: (n_bins + 1,) bounds of the histogram of percentile ranks.
        rank_counts: (n_bins,) records in each bin, for "forget" and "held_out".
    """

    oracle_similarity: Mapping[str, FloatArray]
    nearest_similarity: Mapping[str, FloatArray]
    rank_edges: FloatArray
    rank_counts: Mapping[str, FloatArray]


@dataclass(frozen=True, eq=False)
class Report:
    """The answer of an audit.

    Args:
        verdict: Of all metrics together.
        reason: Why, in one or two sentences.
        metrics: By "m1".."m4", those that could be computed.
        records: One row a forget record: id, group, oracle_similarity, oracle_gap, shift, nearest_similarity,
            nearest_retain, percentile_rank, oracle_p_value, nearest_p_value, p_value, q_value, finding. Columns that
            need an oracle, an original or groups are there and empty without them.
        groups: One row a group of the forget records (an erasure request): group, n_records, oracle_similarity,
            nearest_similarity, shift, p_value, q_value, n_flagged, finding; None without groups.
        guards: What speaks against the evidence; empty if nothing does.
        settings: What the audit was asked to do.
        provenance: Versions, time, shapes and hashes of the arrays.
        distributions: What the plots need.
        pairing: Of oracle and unlearned model; None without an oracle.
        outputs: Output-level numbers by model, e.g. ``{"unlearned": {"retain_accuracy": 0.97}}``; where given.
    """

    verdict: Verdict
    reason: str
    metrics: Mapping[str, MetricFinding]
    records: "pd.DataFrame"
    groups: "pd.DataFrame | None"
    guards: list[GuardFinding]
    settings: AuditSettings
    provenance: Mapping[str, Any]
    distributions: Distributions
    pairing: Pairing | None = None
    outputs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        from ruler.auditing.report import summarise

        return summarise(self)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write ``report.json``, ``report.html`` and ``records.parquet`` into ``folder``, and say where that is."""
        from ruler.auditing.report import save_report

        return save_report(self, Path(folder))

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "Report":
        """The report that `save` wrote."""
        from ruler.auditing.report import load_report

        return load_report(Path(folder))
