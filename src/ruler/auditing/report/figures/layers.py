"""Where in the model forget and held-out records differ: a contrast's AUC against depth."""

import math
from dataclasses import dataclass

from ruler.auditing.findings import LayerFinding, MetricFinding, Report
from ruler.auditing.report.display import format_interval, format_number
from ruler.auditing.report.figures.axes import WIDTH, Axis, Tick, fit_around_half, round_step
from ruler.auditing.report.wording import choose_tone, list_metrics, title_contrast

LEFT = 44.0
RIGHT = WIDTH - 14.0
TOP = 30.0
BASE = 200.0
_MOST_TICKS = 12


@dataclass(frozen=True)
class LayerPoint:
    """One layer of the profile."""

    x: float
    y: float
    span: tuple[float, float] | None
    is_telling: bool


@dataclass(frozen=True)
class LayerProfile:
    """One contrast at every layer that was read.

    Args:
        name: For the ids of the page's elements.
        title: Of the contrast.
        tone: What colours it.
        sentence: Which layer tells most, with its numbers.
        points: One per layer whose AUC is known.
        line: Path through them.
        original: Path through the original model's; empty where it was not given.
        telling_x: Of the most telling layer, if it is known.
        telling_label: Its name, short enough for the drawing.
        band_y: Top of the margin.
        band_height: Of the margin.
        centre_y: Of 0.5.
        depths: Ticks below.
        ticks: Ticks of the AUC.
        ends: First and last layer.
        rows: Layer, AUC, spread and the original's AUC as text, for readers who cannot see the drawing.
    """

    name: str
    title: str
    tone: str
    sentence: str
    points: tuple[LayerPoint, ...]
    line: str
    original: str
    telling_x: float | None
    telling_label: str
    band_y: float
    band_height: float
    centre_y: float
    depths: tuple[Tick, ...]
    ticks: tuple[Tick, ...]
    ends: tuple[str, str]
    rows: tuple[tuple[str, str, str, str], ...]


def draw_layers(report: Report) -> list[LayerProfile]:
    """A profile per deciding contrast that was read at two layers or more."""
    metrics = [m for m in list_metrics(report, is_deciding=True) if len(m.layers) > 1]
    return [_draw_profile(m, report.settings.margin) for m in metrics if any(math.isfinite(e.effect) for e in m.layers)]


def _draw_profile(metric: MetricFinding, margin: float) -> LayerProfile:
    layers = metric.layers
    across = Axis(1.0, float(len(layers)), LEFT + 10, RIGHT - 6)
    ends = [end for one in layers for end in (one.effect, one.original_effect, *one.effect_interval)]
    up = fit_around_half(ends, margin, start=BASE, stop=TOP)
    telling = next((depth for depth, one in enumerate(layers, start=1) if one.layer == metric.layer), None)
    points = tuple(
        LayerPoint(
            x=across.place(depth),
            y=up.place(one.effect),
            span=(up.place(one.effect_interval[0]), up.place(one.effect_interval[1]))
            if all(map(math.isfinite, one.effect_interval))
            else None,
            is_telling=depth == telling,
        )
        for depth, one in enumerate(layers, start=1)
        if math.isfinite(one.effect)
    )
    before = [
        (across.place(depth), up.place(one.original_effect))
        for depth, one in enumerate(layers, start=1)
        if one.original_effect is not None and math.isfinite(one.original_effect)
    ]
    top, bottom = up.place(0.5 + margin), up.place(0.5 - margin)
    return LayerProfile(
        name=f"layers-{metric.name}",
        title=title_contrast(metric.name),
        tone=choose_tone(metric),
        sentence=_say_telling(layers[telling - 1] if telling else None, telling, len(layers)),
        points=points,
        line=_trace([(point.x, point.y) for point in points]),
        original=_trace(before),
        telling_x=across.place(telling) if telling else None,
        telling_label="" if metric.layer is None else _clip(metric.layer),
        band_y=top,
        band_height=round(bottom - top, 2),
        centre_y=up.place(0.5),
        depths=_mark_depths(across, len(layers)),
        ticks=up.find_ticks(5),
        ends=(layers[0].layer, layers[-1].layer),
        rows=tuple(_write_row(one) for one in layers),
    )


def _say_telling(found: LayerFinding | None, depth: int | None, n_layers: int) -> str:
    if found is None:
        return f"Read at {n_layers} layers."
    is_spread = math.isfinite(found.spread) and abs(found.spread - 0.5) > abs(found.effect - 0.5)
    effect, interval = (found.spread, found.spread_interval) if is_spread else (found.effect, found.effect_interval)
    numbers = f"{'AUC of spread' if is_spread else 'AUC'} {format_number(effect, 2)} {format_interval(interval, 2)}"
    return f"Most telling: {found.layer}, layer {depth} of the {n_layers} read ({numbers.rstrip()})."


def _mark_depths(across: Axis, n_layers: int) -> tuple[Tick, ...]:
    step = 1 if n_layers <= _MOST_TICKS else max(1, int(round_step(n_layers / 6)))
    depths = range(1, n_layers + 1) if step == 1 else [1, *range(step, n_layers + 1, step)]
    return tuple(Tick(across.place(depth), str(depth), "middle") for depth in depths)


def _write_row(one: LayerFinding) -> tuple[str, str, str, str]:
    return (
        one.layer,
        f"{format_number(one.effect, 3)} {format_interval(one.effect_interval, 3)}".rstrip(),
        f"{format_number(one.spread, 3)} {format_interval(one.spread_interval, 3)}".rstrip(),
        format_number(one.original_effect, 3),
    )


def _trace(places: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places) if len(places) > 1 else ""


def _clip(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"\u2026{name[1 - most :]}"
