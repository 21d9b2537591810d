"""What an audit finds: the report and its parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["erased", "residual", "displaced", "damaged", "inconclusive", "invalid"]
MetricVerdict = Literal["erased", "residual", "displaced", "inconclusive", "invalid", "descriptive"]
Severity = Literal["fail", "warn", "note"]
Control = Literal["held-out", "none"]
Test = Literal["permutation", "hybrid", "none"]
Interval = tuple[float, float]
Extra = Literal["pdf", "sarif", "junit"]
METRIC_NAME = "[a-z][a-z0-9_]{0,39}"
_UNKNOWN = float("nan")


@dataclass(frozen=True)
class GuardFinding:
    """A doubt about the evidence itself.

    Args:
        name: Of the guard, e.g. ``"near_duplicates"``.
        severity: "fail" makes the audit invalid; "warn" and "note" are for the reader.
        message: What was seen, with its numbers.
        cure: What to do about it.
        blocks: The verdict can be neither erased nor residual nor displaced, but only inconclusive (or damaged).
    """

    name: str
    severity: Severity
    message: str
    cure: str
    blocks: bool = False


@dataclass(frozen=True)
class Sensitivity:
    """Was a contrast seen where it had to be? One that is blind there cannot clear a model.

    Args:
        source: Whose records had to be told apart: the original's forget records, or known members, that is retain
            against held-out records in the audited model itself.
        effect: AUC there.
        p_value: Of that AUC, corrected for the number of contrasts.
        is_seen: The p-value is at most alpha.
        is_strongest: Of all contrasts that are seen, this one is seen best: its ``share_left`` decides.
    """

    source: Literal["original", "known members"]
    effect: float
    p_value: float
    is_seen: bool
    is_strongest: bool = False


@dataclass(frozen=True)
class LayerFinding:
    """One contrast at one layer.

    Args:
        layer: Its name.
        effect: AUC, forget against held-out records.
        effect_interval: Interval of it.
        spread: AUC of the distances from the middle: over 0.5 where forget records scatter more.
        spread_interval: Interval of it.
        original_effect: The original model's AUC, where it was given.
    """

    layer: str
    effect: float
    effect_interval: Interval
    spread: float
    spread_interval: Interval
    original_effect: float | None = None


@dataclass(frozen=True)
class StrongestFinding:
    """Where forget and held-out records differ most by one contrast: what its verdict is read from.

    Args:
        layer: Its name; empty if it has none.
        part: "place", the scores themselves, or "spread", their distances from the middle.
        effect: AUC, forget against held-out records.
        error: Standard error of it, at least the spread under the null; NaN with a single record on a side.
        original_effect: The original model's AUC, where it was given.
        original_statistic: Its distance from 0.5 in standard errors.
        share_lower: One-sided lower limit of the part of the original's contrast that is left here.
    """

    layer: str
    part: Literal["place", "spread"]
    effect: float
    error: float
    original_effect: float | None = None
    original_statistic: float | None = None
    share_lower: float | None = None


@dataclass(frozen=True)
class MetricFinding:
    """One contrast: the paper's number, what the control gives, and whether the two differ.

    Numbers that cannot be computed are NaN or None, and ``reason`` says why. With several layers, the numbers are those
    of ``layer``, where forget and held-out records differ most, and the tests hold for all layers together.

    Args:
        name: "m1" to "m4", "norm" or "loss".
        value: Mean over the forget records; the paper's number for M1 to M4.
        interval: t interval of ``value`` over records (or group means).
        null: The same number for the control: what to expect if nothing was remembered.
        difference: ``value - null``.
        difference_interval: Welch's interval of the difference.
        effect: AUC: the chance that a forget record scores above a held-out one, ties counted half; 0.5 is no contrast.
            With the hybrid test, 0.5 plus the difference between this AUC and the oracles' own.
        effect_interval: Logit Brunner-Munzel t interval of the AUC.
        p_value: Are forget and control alike, in place and in spread, at every layer?
        equivalence_p_value: Two one-sided tests: are place and spread within ``margin`` of 0.5 at every layer?
        margin: Largest distance of the AUC from 0.5 that still counts as erased.
        control: Whom the forget records were compared with.
        verdict: "descriptive" where the metric has no part in the verdict (M1, M3).
        reason: One or two sentences for the reader.
        n_forget: Forget records (whole groups, where given) behind the test.
        n_control: Control records (or groups).
        minimum_detectable_effect: Distance of the AUC from 0.5 that the test finds with the set power, at the level
            that is left after correction for all contrasts.
        n_needed: Forget records at which equivalence would be shown by all deciding contrasts together with the set
            power if it were true, the control growing in proportion.
        paper_null: The paper's fixed null, 0 for M2 and M3, 0.5 for M4; None for the others.
        paper_reading: What the paper's rule says of ``value``: its sign alone.
        test: How the p-value was found.
        adjusted_p_value: ``p_value`` corrected for all contrasts that decide.
        beyond_oracle_p_value: ``adjusted_p_value`` without what the first oracle shows of the records; NaN without an
            oracle, with the hybrid test, and where no contrast differs.
        spread: AUC of the distances from the middle: over 0.5 where forget records scatter more than the control.
        spread_interval: Interval of it.
        sensitivity: Whether this contrast was seen where it had to be; None where that could not be tried.
        original_effect: The original model's AUC, where it was given.
        share_left: Part of the positive control's contrast that is left: 1 all, 0 none, negative turned over. The
            control is the original model, or known members without it.
        share_left_interval: Interval of it, by Fieller.
        share_left_upper: One-sided upper limit of it at level 1 - alpha: what the verdict is read from.
        share_left_lower: The lower limit of the same kind.
        strongest: Where forget and held-out records differ most; None without held-out records.
        largest_distance: One-sided upper limit of the distance of place and spread from 0.5 at any layer.
        layer: Where the numbers come from; None if the layer has no name.
        layers: One entry per layer that was read, in order; empty for a single one.
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
    test: Test = "none"
    adjusted_p_value: float = _UNKNOWN
    beyond_oracle_p_value: float = _UNKNOWN
    spread: float = _UNKNOWN
    spread_interval: Interval = (_UNKNOWN, _UNKNOWN)
    sensitivity: Sensitivity | None = None
    original_effect: float | None = None
    share_left: float | None = None
    share_left_interval: Interval | None = None
    share_left_upper: float | None = None
    share_left_lower: float | None = None
    strongest: StrongestFinding | None = None
    largest_distance: float = _UNKNOWN
    layer: str | None = None
    layers: tuple[LayerFinding, ...] = ()
    plain_value: float | None = None
    aligned_value: float | None = None
    reference_error: float | None = None


@dataclass(frozen=True)
class Damage:
    """Does the model still work? Retain records tell.

    Args:
        similarity: Linear CKA of retain records to the oracle, in [0, 1]; NaN without an oracle.
        least_similarity: Under it the model counts as damaged.
        skill: Part of the oracle's retain accuracy beyond the most frequent label that is left; NaN where labels or
            predictions are unknown.
        least_skill: Under it the model counts as damaged.
        is_damaged: Whether it does.
        reason: Why, or why not, in one sentence.
        lost: Accuracy on retain records that is gone; NaN where it is unknown.
    """

    similarity: float
    least_similarity: float
    skill: float
    least_skill: float
    is_damaged: bool
    reason: str
    lost: float = _UNKNOWN


@dataclass(frozen=True)
class AttackFinding:
    """What an audit of the same models found after an attack on all of them.

    Args:
        name: Of the attack, e.g. ``"quantize"``.
        words: What was done, behind "after".
        verdict: Of the attacked model.
        reason: Why, in one or two sentences.
        metrics: As `Report.metrics`.
        guards: As `Report.guards`.
        n_flagged: Forget records that stand out there.
    """

    name: str
    words: str
    verdict: Verdict
    reason: str
    metrics: Mapping[str, MetricFinding]
    guards: list[GuardFinding]
    n_flagged: int


@dataclass(frozen=True)
class Privacy:
    """What an attacker who knows the best contrast and its threshold achieves, for privacy engineers.

    Contrast, side and threshold are chosen on one half of the records and judged on the other.

    Args:
        contrast: Name of the best contrast.
        epsilon: Lower bound of epsilon that its error rates prove, by Clopper and Pearson; 0 proves nothing.
        confidence: Of that bound.
        true_positive_rate: At 1% false positives, over all records; NaN with fewer than 100 held-out records.
        true_positive_interval: Clopper-Pearson interval of it.
    """

    contrast: str
    epsilon: float
    confidence: float
    true_positive_rate: float
    true_positive_interval: Interval


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
class Plane:
    """Records of the audited model at one layer, along the two principal components of those that are drawn.

    Args:
        layer: Its name; empty if it has none.
        points: ``points[side]``, (n, 2): a random sample of each side, in standard deviations of the first component.
        shares: Part of the sample's variance that each component holds.
    """

    layer: str
    points: Mapping[str, FloatArray]
    shares: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Distributions:
    """Values per record, for plots; sides are "forget", "held_out" (where given) and "retain" (a sample).

    Args:
        scores: ``scores[contrast][side]``: per-record scores of every contrast, at the contrast's ``layer``.
        roc: ``roc[contrast]``: false positive rates and true positive rates, (n_points,) each, of an attacker who calls
            records forgotten by this score, on the side that the contrast takes.
        rank_edges: (n_bins + 1,) bounds of the histogram of percentile ranks.
        rank_counts: (n_bins,) records in each bin, for "forget" and "held_out".
        plane: The main layer in two dimensions; None where it has no two, and in reports from before there was one.
    """

    scores: Mapping[str, Mapping[str, FloatArray]]
    roc: Mapping[str, tuple[FloatArray, FloatArray]]
    rank_edges: FloatArray
    rank_counts: Mapping[str, FloatArray]
    plane: Plane | None = None


@dataclass(frozen=True, eq=False)
class Report:
    """The answer of an audit.

    Args:
        verdict: Of all contrasts together.
        reason: Why, in one or two sentences.
        metrics: By "m1" to "m4", "norm" and "loss", those that could be computed.
        records: One row per forget record: id, group, oracle_similarity, oracle_gap, shift, nearest_similarity,
            nearest_retain, percentile_rank, norm_ratio, loss, loss_gap, p_value, q_value, finding. Columns that need an
            oracle, an original, losses or groups are there and empty without them.
        groups: One row per group of the forget records (an erasure request): group, n_records, oracle_similarity,
            nearest_similarity, shift, loss_gap, p_value, q_value, n_flagged, finding; None without groups.
        guards: What speaks against the evidence; empty if nothing does.
        settings: What the audit was asked to do.
        provenance: Versions, time, shapes and hashes of the arrays; layers, weights and files where known.
        distributions: What the plots need.
        needs: What would settle an inconclusive verdict, the most useful first.
        pairing: Of the first oracle and the unlearned model; None without an oracle.
        outputs: Output-level numbers by model, e.g. ``{"unlearned": {"retain_accuracy": 0.97}}``; where given.
        damage: Whether the model still works; None without an oracle and without predictions.
        privacy: What the best contrast proves; None without held-out records.
        declared: What whoever ran the audit says about it (``[evidence]`` of the TOML file); shown, never verified.
        attacks: By name, what was found after attacks on the models; the verdict is the worst of all. Their audits and
            the plain one share the error rate: ``settings.alpha`` is that of each.
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
    needs: list[str] = field(default_factory=list)
    pairing: Pairing | None = None
    outputs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    damage: Damage | None = None
    privacy: Privacy | None = None
    declared: Mapping[str, str] = field(default_factory=dict)
    attacks: Mapping[str, AttackFinding] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: the verdict, each contrast with its own, and what else there is."""
        metrics = ", ".join(f"{name} {metric.verdict}" for name, metric in self.metrics.items())
        return (
            f"<Report: {self.verdict} ({metrics}); {len(self.records):,} forget records, {len(self.guards)} guard "
            "findings; print() it, or save() it for the page>"
        )

    def __str__(self) -> str:
        from ruler.auditing.report import summarise

        return summarise(self)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``report.json``, records left out."""
        from ruler.auditing.report import describe_report

        return describe_report(self)

    def _repr_html_(self) -> str:
        from ruler.auditing.report import render_notebook

        return render_notebook(self)

    def save(
        self,
        folder: str | PathLike[str],
        *,
        sign_with: str | PathLike[str] | None = None,
        also: Sequence[Extra] = (),
    ) -> Path:
        """Write ``report.json``, ``report.html``, ``records.parquet`` and ``manifest.json`` into ``folder``.

        Args:
            folder: Where to.
            sign_with: A private key of `ruler keygen`: adds ``seal.json``.
            also: "pdf" (needs Chromium), "sarif" and "junit" add ``report.pdf``, ``report.sarif`` and ``junit.xml``.

        Returns:
            The folder.
        """
        from ruler.auditing.report import save_report

        return save_report(self, Path(folder), sign_with=None if sign_with is None else Path(sign_with), also=also)

    @classmethod
    def load(cls, folder: str | PathLike[str]) -> "Report":
        """The report that `save` wrote."""
        from ruler.auditing.report import load_report

        return load_report(Path(folder))
