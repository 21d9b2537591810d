"""How well forget and held-out records can be told apart, contrast by contrast."""

import math
from dataclasses import dataclass

from ruler.auditing.findings import MetricFinding, Report
from ruler.auditing.report.display import format_interval, format_number
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Tick, fit_around_half
from ruler.auditing.report.wording import choose_tone, list_metrics, name_verdict, title_contrast

_TOP = 66.0
_STEP = 66.0


@dataclass(frozen=True)
class Effect:
    """One metric of the effect figure: place, and spread below it."""

    label: str
    value: str
    spread: str
    y: float
    x: float
    span: tuple[float, float] | None
    spread_x: float | None
    spread_span: tuple[float, float] | None
    original_x: float | None
    verdict: str
    tone: str


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
    has_spread: bool


def draw_effects(report: Report) -> EffectFigure | None:
    """The deciding contrasts' AUCs beside the margin; None where none has one."""
    metrics = [metric for metric in list_metrics(report, is_deciding=True) if math.isfinite(metric.effect)]
    if not metrics:
        return None
    margin = report.settings.margin
    ends = [
        end for m in metrics for end in (m.effect, m.spread, m.original_effect, *m.effect_interval, *m.spread_interval)
    ]
    axis = fit_around_half(ends, margin, start=EDGE, stop=WIDTH - EDGE)
    effects = tuple(_place_effect(metric, axis, _TOP + _STEP * number) for number, metric in enumerate(metrics))
    band = axis.place(0.5 - margin), axis.place(0.5 + margin)
    return EffectFigure(
        sentence="The closer to 0.50, the less these contrasts tell forget from held-out records. Erased means shown "
        f"to lie inside the band from {0.5 - margin:.2f} to {0.5 + margin:.2f}.",
        height=_TOP + _STEP * len(effects) + 12,
        effects=effects,
        band_x=band[0],
        band_width=round(band[1] - band[0], 2),
        centre_x=axis.place(0.5),
        ticks=axis.find_ticks(6),
        has_original=any(effect.original_x is not None for effect in effects),
        has_spread=any(effect.spread_x is not None for effect in effects),
    )


def _place_effect(metric: MetricFinding, axis: Axis, y: float) -> Effect:
    def span(interval: tuple[float, float]) -> tuple[float, float] | None:
        return (axis.place(interval[0]), axis.place(interval[1])) if all(map(math.isfinite, interval)) else None

    original = metric.original_effect
    return Effect(
        label=title_contrast(metric.name),
        value=f"{format_number(metric.effect, 2)} {format_interval(metric.effect_interval, 2)}".rstrip(),
        spread=f"{format_number(metric.spread, 2)} {format_interval(metric.spread_interval, 2)}".rstrip(),
        y=y,
        x=axis.place(metric.effect),
        span=span(metric.effect_interval),
        spread_x=axis.place(metric.spread) if math.isfinite(metric.spread) else None,
        spread_span=span(metric.spread_interval),
        original_x=axis.place(original) if original is not None and math.isfinite(original) else None,
        verdict=name_verdict(metric),
        tone=choose_tone(metric),
    )
