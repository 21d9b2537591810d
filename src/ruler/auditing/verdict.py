"""What the contrasts mean: residual, displaced, erased or inconclusive, for each metric and overall."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ruler.auditing.contrast import Measurement, take_interval
from ruler.auditing.findings import Control, GuardFinding, MetricFinding, Verdict
from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray

DECIDING = ("m2", "m4")
"""Metrics with a part in the verdict: M1 is M2 without its baseline; M3 says where records went, not what is left."""

RESIDUAL_SIDE = {"m2": -1, "m4": 1}
"""The paper's reading of the sign, for want of the original: further from the oracle, or nearer to retain records."""

UNTOUCHED = "identical_to_original"
"""The guard that rules erasure out: whatever cannot be seen of the records, nothing was done about them."""


def can_show_erasure(name: str, control: Control) -> bool:
    """Whether likeness to the control speaks for forgetting.

    M4 among placebos does not: a model that remembers forget and retain records alike looks just so.

    Example:
        >>> can_show_erasure("m4", "held-out"), can_show_erasure("m4", "placebo")
        (True, False)
    """
    return not (name == "m4" and control == "placebo")


def decide_metric(
    name: str, found: Measurement, equivalence_p: float, settings: AuditSettings, control: Control = "held-out"
) -> tuple[Verdict, str]:
    """The verdict of one metric and the reason for it.

    Erased needs equivalence shown; residual and displaced need a difference shown; the rest is inconclusive. A
    difference that is shown, and shown to be within the margin, is erased: the margin says what is too small to matter.

    Args:
        name: "m2" or "m4".
        found: The metric's contrast with its control.
        equivalence_p: Of the two one-sided tests.
        settings: Alpha and margin.
        control: Whom the forget records were compared with.
    """
    is_different = found.contrast.p_value <= settings.alpha
    if equivalence_p <= settings.alpha and not can_show_erasure(name, control):
        return "inconclusive", (
            "Forget and retain records are alike, but so they are in a model that remembers both: only held-out "
            "records can show erasure by M4."
        )
    if equivalence_p <= settings.alpha:
        seen = "a difference can be seen, yet it is" if is_different else "no difference is seen, and it is shown to be"
        return "erased", f"Forget and control records: {seen} within the margin of {settings.margin:g} around AUC 0.5."
    if not is_different:
        return "inconclusive", _explain_doubt(found, settings)
    if found.original is None:
        return _read_sign(name, found)
    return _trace_to_original(found, settings)


def decide_overall(
    metrics: Mapping[str, MetricFinding], guards: Sequence[GuardFinding], settings: AuditSettings
) -> tuple[Verdict, str]:
    """The verdict of all deciding metrics together.

    Residual or displaced: at least one metric says so and its p-value holds after Holm's correction, which keeps the
    chance of any false alarm at alpha. Erased: every metric that can show it says so (which needs no correction).
    Residual goes before displaced. A model that is still the original is never erased.
    """
    failed = [guard for guard in guards if guard.severity == "fail"]
    if failed:
        return "invalid", f"The evidence cannot carry a verdict: {failed[0].message}"
    counted = {name: metrics[name] for name in DECIDING if name in metrics}
    for verdict in ("residual", "displaced"):
        for name, one in counted.items():
            if one.verdict == verdict and one.adjusted_p_value <= settings.alpha:
                return verdict, f"{name.upper()}: {one.reason}"
    untouched = [guard for guard in guards if guard.name == UNTOUCHED]
    if untouched:
        return "inconclusive", f"A model that was not changed cannot be cleared. {untouched[0].message}"
    able = {name: one for name, one in counted.items() if can_show_erasure(name, one.control)}
    if able and all(one.verdict == "erased" for one in able.values()):
        names = " and ".join(name.upper() for name in able)
        peers = "records that were never trained on" if "m4" in able else "retain records"
        return "erased", f"By {names}, forget records are as {peers}, within the margin."
    doubts = [f"{name.upper()}: {one.reason}" for name, one in counted.items() if one.verdict != "erased"]
    return "inconclusive", " ".join(doubts)


def adjust_deciding(metrics: Mapping[str, MetricFinding]) -> dict[str, MetricFinding]:
    """Fill in Holm-adjusted p-values of the metrics that decide."""
    counted = [name for name in DECIDING if name in metrics]
    adjusted = holm([metrics[name].p_value for name in counted])
    filled = {
        name: replace(metrics[name], adjusted_p_value=float(p)) for name, p in zip(counted, adjusted, strict=True)
    }
    return {**metrics, **filled}


def holm(p_values: npt.ArrayLike) -> FloatArray:
    """Holm's step-down p-values: rejecting those at most alpha keeps the chance of any false rejection at alpha.

    Example:
        >>> holm([0.04, 0.03]).tolist(), holm([0.04, 0.01]).tolist()
        ([0.06, 0.06], [0.04, 0.02])
    """
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(len(raw), 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def read_by_paper(name: str, value: float) -> str:
    """What the paper's rule says of a number: its sign against the fixed null, whatever chance may do.

    Example:
        >>> read_by_paper("m2", -0.001), read_by_paper("m4", 0.5)
        ('residual', 'erased')
    """
    side = float(np.sign(value - (0.5 if name == "m4" else 0.0))) * RESIDUAL_SIDE[name]
    return {1.0: "residual", -1.0: "displaced", 0.0: "erased"}[side]


def _read_sign(name: str, found: Measurement) -> tuple[Verdict, str]:
    side = int(np.sign(found.contrast.effect - found.contrast.null_effect))
    verdict: Verdict = "residual" if side == RESIDUAL_SIDE[name] else "displaced"
    return verdict, (
        f"{_describe(found)} The original model was not given, so that '{verdict}' is the paper's reading of the sign: "
        "records memorised as exceptions can stand on the other side."
    )


def _trace_to_original(found: Measurement, settings: AuditSettings) -> tuple[Verdict, str]:
    assert found.original is not None
    assert found.draws.original is not None
    now = found.contrast.effect - found.contrast.null_effect
    before = found.original.effect - found.original.null_effect
    if np.sign(now) != np.sign(before):
        return "displaced", f"{_describe(found)} The original model's contrast lies on the other side: this one is new."
    low, high = take_interval(found.draws.effect - found.draws.original, settings)
    has_grown = low > 0 if now > 0 else high < 0
    if has_grown and found.original.p_value > settings.alpha:
        return "displaced", f"{_describe(found)} The original model does not show it: this contrast is new."
    return "residual", f"{_describe(found)} It is the original model's own contrast (AUC {found.original.effect:.3f})."


def _describe(found: Measurement) -> str:
    contrast = found.contrast
    side = "above" if contrast.effect > contrast.null_effect else "below"
    return f"Forget records lie {side} their control (AUC {contrast.effect:.3f}, p = {contrast.p_value:.4f})."


def _explain_doubt(found: Measurement, settings: AuditSettings) -> str:
    contrast = found.contrast
    if np.isnan(contrast.standard_error):
        return "One side holds a single record or group, which cannot show equivalence; no difference is seen."
    return (
        f"No difference is seen (AUC {contrast.effect:.3f}, p = {contrast.p_value:.3f}), but one larger than the "
        f"margin of {settings.margin:g} is not ruled out."
    )
