"""How well forget and control records can be told apart, metric by metric."""

import math
from dataclasses import dataclass

from ruler.auditing.findings import MetricFinding, Report
from ruler.auditing.report.display import format_interval, format_number
from ruler.auditing.report.figures.axes import Axis, Tick
from ruler.auditing.report.wording import DECIDING, METRICS

_TOP = 66.0
_STEP = 58.0


@dataclass(frozen=True)
class Effect:
    """One metric of the effect figure."""

    label: str
    value: str
    y: float
    x: float
    low_x: float
    high_x: float
    has_interval: bool
    original_x: float | None
    verdict: str


@dataclass(frozen=True)
class EffectFigure:
    """AUC of each metric with interval, beside the margin within which records count as erased."""

    sentence: str
    height: float
    effects: tuple[Effect, ...]
    band_x: float
    band_width: float
    centre_x: float
    ticks: tuple[Tick, ...]
    has_original: bool


def draw_effects(report: Report) -> EffectFigure | None:
    """The deciding metrics' AUCs beside the margin; None where no metric has one."""
    metrics = [m for name, m in sorted(report.metrics.items()) if name in DECIDING and math.isfinite(m.effect)]
    if not metrics:
        return None
    margin = report.settings.margin
    axis = _fit_axis(metrics, margin)
    effects = tuple(_place_effect(metric, axis, _TOP + _STEP * number) for number, metric in enumerate(metrics))
    band = axis.place(0.5 - margin), axis.place(0.5 + margin)
    return EffectFigure(
        sentence="The closer to 0.50, the less forget and control records can be told apart. Erased means shown to "
        f"lie inside the band from {0.5 - margin:.2f} to {0.5 + margin:.2f}.",
        height=_TOP + _STEP * len(effects) + 12,
        effects=effects,
        band_x=band[0],
        band_width=round(band[1] - band[0], 2),
        centre_x=axis.place(0.5),
        ticks=axis.find_ticks(6),
        has_original=any(effect.original_x is not None for effect in effects),
    )


def _fit_axis(metrics: list[MetricFinding], margin: float) -> Axis:
    ends = [end for m in metrics for end in (m.effect, *m.effect_interval, m.original_effect or 0.5)]
    reach = max([2 * margin, 0.2, *(abs(end - 0.5) + 0.03 for end in ends if math.isfinite(end))])
    return Axis(0.5 - min(reach, 0.5), 0.5 + min(reach, 0.5))


def _place_effect(metric: MetricFinding, axis: Axis, y: float) -> Effect:
    has_interval = all(map(math.isfinite, metric.effect_interval))
    low, high = metric.effect_interval if has_interval else (metric.effect, metric.effect)
    original = metric.original_effect
    return Effect(
        label=f"{metric.name.upper()} {METRICS[metric.name].title.lower()}",
        value=f"{format_number(metric.effect, 2)} {format_interval(metric.effect_interval, 2)}".rstrip(),
        y=y,
        x=axis.place(metric.effect),
        low_x=axis.place(low),
        high_x=axis.place(high),
        has_interval=has_interval,
        original_x=axis.place(original) if original is not None and math.isfinite(original) else None,
        verdict=metric.verdict,
    )
