"""What an audit finds: the report and its parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["erased", "residual", "displaced", "damaged", "inconclusive", "invalid"]
MetricVerdict = Literal["erased", "residual", "displaced", "damaged", "inconclusive", "invalid", "descriptive"]
Severity = Literal["fail", "warn", "note"]
Control = Literal["held-out", "none"]
Scale = Literal["original", "members"]
Family = Literal["outputs", "layers"]
Interval = tuple[float, float]
Extra = Literal["pdf", "sarif", "junit"]
SEEN = 3.0
"""Standard errors from which on a trace in the positive control is one that can be measured."""

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
class Remaining:
    """How much of a trace remains: 0 as in records that were never trained on, 1 as in records that were.

    Args:
        value: mean(forget) - mean(held-out) of the score in the audited model, over the trace that training leaves.
        low: Lower end of the interval, at the settings' confidence.
        high: Upper end; infinite if nothing can be said.
        at_least: One-sided lower limit of the same confidence.
        at_most: One-sided upper limit: what the verdict is read from.
        scale: Whose trace is 1: that of the same records in the original model, or that of known members (retain
            records) in the audited model.
        contrast: Name of the contrast.
        layer: Where the score was read; None if it has no layer.
        visibility: The trace that is 1, in standard errors.
        resolution: The same in standard errors of a model in which nothing remains. At 2.93 / limit such a model is
            shown to lie within the limit in four of five audits.
    """

    value: float
    low: float
    high: float
    at_least: float
    at_most: float
    scale: Scale
    contrast: str
    layer: str | None = None
    visibility: float = _UNKNOWN
    resolution: float = _UNKNOWN

    @property
    def reach(self) -> float:
        """The larger of the one-sided limits, whatever its sign."""
        return max(abs(self.at_least), abs(self.at_most))

    def is_within(self, limit: float) -> bool:
        """Two one-sided tests show that it lies inside (-limit, limit)."""
        return -limit < self.at_least and self.at_most < limit


def find_worst(found: Iterable[Remaining]) -> Remaining | None:
    """The least favourable amount, whose one-sided limits reach furthest from 0; infinite ones only if all are."""
    return max(found, key=lambda one: (isfinite(one.reach), one.reach), default=None)


@dataclass(frozen=True)
class Part:
    """One way in which forget and held-out records may differ by a contrast.

    Args:
        effect: AUC of it: the chance that a forget record scores above a held-out one, ties counted half.
        interval: Of the AUC.
        p_value: Corrected for all parts, layers and contrasts that decide.
    """

    effect: float
    interval: Interval
    p_value: float


@dataclass(frozen=True)
class MetricControl:
    """Whom the forget records were compared with, and what the original model shows of them.

    Args:
        kind: "held-out", or "none" if there are no held-out records.
        n_forget: Forget records (or groups) behind the numbers.
        n_control: Held-out records (or groups).
        original_effect: AUC in the original model; NaN without it.
        original_p_value: Of the difference there; NaN without it.
    """

    kind: Control
    n_forget: int
    n_control: int
    original_effect: float = _UNKNOWN
    original_p_value: float = _UNKNOWN


@dataclass(frozen=True)
class PaperReading:
    """The paper's fixed null for a metric, and what its rule says of the value: its side alone."""

    null: float
    reading: str


@dataclass(frozen=True)
class LayerFinding:
    """One contrast at one layer: its AUC and what remains by scale."""

    layer: str
    effect: float
    effect_interval: Interval
    p_value: float
    remaining: Mapping[str, Remaining] = field(default_factory=dict)


@dataclass(frozen=True)
class MetricFinding:
    """One contrast: the paper's number, what the control gives, whether the two differ, and how much remains.

    Numbers that cannot be computed are NaN, and ``reason`` says why. With several layers, the numbers are those of
    ``layer``, where forget and held-out records differ most; ``remaining`` is the largest of any layer.

    Args:
        name: "m1" to "m4", "norm", "loss", "readout", "tangent", "relearned", or that of another package.
        family: What it speaks of: what the model says ("outputs") or what its layers hold ("layers").
        value: Mean over the forget records; the paper's number for M1 to M4.
        interval: t interval of ``value`` over records (or group means).
        null: The same number for the held-out records.
        p_value: Are forget and held-out records alike in every part and layer? Not corrected for other contrasts.
        place: Do the scores lie elsewhere?
        spread: Do they scatter more or less?
        tail: Are more of them unusually high?
        control: Whom the records were compared with.
        remaining: By scale, "original" and "members"; empty where there is none.
        verdict: "descriptive" if the metric has no part in the verdict.
        reason: One or two sentences for the reader.
        layer: Where the numbers come from; None if the layer has no name.
        layers: One entry per layer that was read, in order; empty for a single one.
        paper: The paper's own reading; None for contrasts that are not the paper's.
        plain_value: The number without alignment, where aligned ones were used.
        aligned_value: The number with alignment, where it was computed.
        reference_error: How far M4 can be from its value among all retain records, where it was ranked among a sample.
    """

    name: str
    family: Family
    value: float
    interval: Interval
    null: float
    p_value: float
    place: Part
    spread: Part
    tail: Part
    control: MetricControl
    remaining: Mapping[str, Remaining] = field(default_factory=dict)
    verdict: MetricVerdict = "descriptive"
    reason: str = ""
    layer: str | None = None
    layers: tuple[LayerFinding, ...] = ()
    paper: PaperReading | None = None
    plain_value: float | None = None
    aligned_value: float | None = None
    reference_error: float | None = None

    @property
    def effect(self) -> float:
        """AUC of the scores, forget against held-out records."""
        return self.place.effect

    @property
    def parts(self) -> dict[str, Part]:
        """Place, spread and tail by name."""
        return {"place": self.place, "spread": self.spread, "tail": self.tail}


@dataclass(frozen=True)
class FamilyFinding:
    """What the model says of the forget records, or what its layers hold of them.

    Args:
        verdict: As of the whole report.
        remaining: The least favourable of those that decide; None if nothing could be measured.
        reason: Why, in a sentence or two.
    """

    verdict: Verdict
    remaining: Remaining | None
    reason: str


@dataclass(frozen=True)
class Given:
    """What the audit was given."""

    oracle: int = 0
    original: bool = False
    reference: int = 0
    held_out: bool = False
    losses: bool = False
    groups: bool = False
    design: bool = False


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
        verdict: The worse of ``outputs`` and ``layers``.
        reason: Why, in one or two sentences.
        outputs: What the model says of the forget records.
        layers: What its layers hold of them.
        metrics: By "m1" to "m4", "norm", "loss", "readout", "tangent" and "relearned", those that could be computed.
        records: One row per forget record: id, group, remaining, low, high, oracle_similarity, oracle_gap, shift,
            nearest_similarity, nearest_retain, percentile_rank, norm_ratio, loss, loss_gap, p_value, q_value, finding.
            Columns that need an oracle, an original, losses or groups are there and empty without them.
        groups: One row per group of the forget records (a person, an erasure request): group, n_records, remaining,
            low, high, at_least, at_most, verdict, oracle_similarity, nearest_similarity, shift, loss_gap, p_value,
            q_value, n_flagged, finding; None without groups.
        guards: What speaks against the evidence; empty if nothing does.
        given: What the audit was given.
        settings: What the audit was asked to do.
        provenance: Versions, time, shapes and hashes of the arrays; layers, weights and files where known.
        distributions: What the plots need.
        needs: What would settle an inconclusive verdict, the most useful first.
        pairing: Of the first oracle and the unlearned model; None without an oracle.
        answers: Output-level numbers by model, e.g. ``{"unlearned": {"retain_accuracy": 0.97}}``; where given.
        damage: Whether the model still works; None without an oracle and without predictions.
        privacy: What the best contrast proves; None without held-out records.
        declared: What whoever ran the audit says about it (``[evidence]`` of the TOML file); shown, never verified.
        attacks: By name, what was found after attacks on the models; the verdict is the worst of all. Their audits and
            the plain one share the error rate: ``settings.alpha`` is that of each.
    """

    verdict: Verdict
    reason: str
    outputs: FamilyFinding
    layers: FamilyFinding
    metrics: Mapping[str, MetricFinding]
    records: "pd.DataFrame"
    groups: "pd.DataFrame | None"
    guards: list[GuardFinding]
    given: Given
    settings: AuditSettings
    provenance: Mapping[str, Any]
    distributions: Distributions
    needs: list[str] = field(default_factory=list)
    pairing: Pairing | None = None
    answers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    damage: Damage | None = None
    privacy: Privacy | None = None
    declared: Mapping[str, str] = field(default_factory=dict)
    attacks: Mapping[str, AttackFinding] = field(default_factory=dict)

    @property
    def remaining(self) -> Remaining | None:
        """How much remains, by the least favourable of the contrasts that decide; None if nothing could be measured."""
        found = [self.outputs.remaining] + [self.layers.remaining] * (self.settings.scope == "layers")
        known = [one for one in found if one is not None]
        return find_worst(known)

    def __repr__(self) -> str:
        """One line: the verdict, how much remains, each contrast with its verdict, and what else there is."""
        metrics = ", ".join(f"{name} {metric.verdict}" for name, metric in self.metrics.items())
        left = self.remaining
        how_much = "" if left is None else f", {left.value:.2f} [{left.low:.2f}, {left.high:.2f}] remains"
        return (
            f"<Report: {self.verdict}{how_much} ({metrics}); {len(self.records):,} forget records, "
            f"{len(self.guards)} guard findings; print() it, or save() it for the page>"
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
