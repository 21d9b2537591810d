"""How well forget and held-out records can be told apart: by contrast, by layer, and at what rate of false alarms."""

import math
from dataclasses import dataclass

import numpy as np

from ruler.auditing.findings import LayerFinding, MetricFinding, Remaining, Report, find_worst
from ruler.auditing.report.display import format_estimate, format_number
from ruler.auditing.report.figures.axes import WIDTH, Axis, Tick, fit_around_half, round_step
from ruler.auditing.report.figures.scale import fit_scale
from ruler.auditing.report.words import format_remaining, has_neutral, list_metrics, name_contrast
from ruler.core.types import FloatArray

_MOST_DEPTHS = 12
_MOST_POINTS = 160
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_ROC_LEFT = 48.0
_ROC_RIGHT = WIDTH - 12.0

Rates = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class LayerPoint:
    """One layer of a profile: its place, and the ends of its interval if they are known."""

    x: float
    y: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class LayerProfile:
    """One contrast at every layer that was read: what remains there or, if it has no scale, its AUC.

    Args:
        what: What is drawn, for headings.
        up: Scale of what is drawn.
        strongest: Place of the layer that the finding's numbers come from; None if it is not known.
        band: Ends of the limit; None for an AUC.
        middle: Where nothing remains, or where an AUC is 0.5.
        points: Layers with a number.
        line: Path through them.
        depths: Ticks below, the first layer being 1.
        rises: Ticks at the side.
    """

    metric: MetricFinding
    what: str
    up: Axis
    strongest: float | None
    band: tuple[float, float] | None
    middle: float
    sentence: str
    points: tuple[LayerPoint, ...]
    line: str
    depths: tuple[Tick, ...]
    rises: tuple[Tick, ...]


@dataclass(frozen=True)
class RocCurve:
    """One contrast's curve, and its entry in the key."""

    label: str
    path: str
    style: int
    key_x: float


@dataclass(frozen=True)
class RocFigure:
    """True against false positive rates, false ones on a logarithmic scale.

    Args:
        description: Rates of every contrast, for readers who cannot see the drawing.
        curves: One per contrast, the best one last so that it lies on top.
        chance: Guessing, the diagonal.
    """

    description: str
    curves: tuple[RocCurve, ...]
    chance: RocCurve
    one_percent_x: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


@dataclass(frozen=True)
class LossRoc:
    """True against false positive rates of an attacker who knows the losses, both on plain scales.

    Args:
        sentence: The AUC and its interval in words.
        path: The curve.
        area: What lies below it.
    """

    sentence: str
    label: str
    path: str
    area: str
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def draw_layers(report: Report) -> list[LayerProfile]:
    """A profile per deciding contrast that was read at two layers or more, those with a scale first."""
    metrics = [m for m in list_metrics(report, is_deciding=True) if len(m.layers) > 1]
    drawn = [_draw_profile(m, report.settings.limit) for m in metrics if any(math.isfinite(e.effect) for e in m.layers)]
    return sorted(drawn, key=lambda one: one.band is None)


def choose_scale(found: LayerFinding) -> Remaining | None:
    """What remains at a layer by its least favourable scale; None if it has none."""
    return find_worst(one for one in found.remaining.values() if math.isfinite(one.value))


def _draw_profile(metric: MetricFinding, limit: float) -> LayerProfile:
    layers = metric.layers
    amounts = [choose_scale(one) for one in layers]
    is_scaled = any(amounts)
    across = Axis(1.0, float(len(layers)), 54.0, WIDTH - 20.0)
    if is_scaled:
        wide = fit_scale([end for one in amounts if one is not None for end in (one.low, one.high)], limit)
        up = Axis(wide.low, wide.high, 200.0, 30.0)
        rows = [
            (math.nan, (math.nan, math.nan)) if one is None else (one.value, (one.low, one.high)) for one in amounts
        ]
    else:
        ends = [end for one in layers for end in (one.effect, *one.effect_interval)]
        up = fit_around_half(ends, 0.1, start=200.0, stop=30.0)
        rows = [(one.effect, one.effect_interval) for one in layers]
    strongest = next((depth for depth, one in enumerate(layers, start=1) if one.layer == metric.layer), None)
    step = 1 if len(layers) <= _MOST_DEPTHS else max(1, int(round_step(len(layers) / 6)))
    points = tuple(
        LayerPoint(
            across.place(depth),
            up.place(value),
            None if any(map(math.isnan, ends)) else (up.place(ends[0]), up.place(ends[1])),
        )
        for depth, (value, ends) in enumerate(rows, start=1)
        if math.isfinite(value)
    )
    places = [f"{point.x:g} {point.y:g}" for point in points]
    rises = up.find_ticks(5)
    if is_scaled:
        rises = tuple(Tick(tick.at, _as_percent(tick.label), "end") for tick in rises)
    return LayerProfile(
        metric=metric,
        what="what remains" if is_scaled else "AUC",
        up=up,
        strongest=None if strongest is None else across.place(strongest),
        band=(up.place(limit), up.place(-limit)) if is_scaled else None,
        middle=up.place(0.0 if is_scaled else 0.5),
        sentence=_say_strongest(layers[strongest - 1], strongest, len(layers))
        if strongest
        else f"Read at {len(layers)} layers.",
        points=points,
        line="M" + "L".join(places) if len(places) > 1 else "",
        depths=tuple(
            Tick(across.place(depth), str(depth), "middle")
            for depth in range(1, len(layers) + 1)
            if depth % step == 0 or depth == 1
        ),
        rises=rises,
    )


def _as_percent(label: str) -> str:
    value = float(label.replace("\u2212", "-"))
    return f"{100 * value:.0f}%".replace("-", "\u2212")


def _say_strongest(found: LayerFinding, depth: int, n_layers: int) -> str:
    numbers = f"AUC {format_estimate(found.effect, found.effect_interval)}"
    amount = choose_scale(found)
    if amount is not None:
        numbers = f"{format_remaining(amount)} remains, {numbers}"
    return f"Differs most at {found.layer}, layer {depth} of {n_layers} ({numbers})."


def draw_roc(report: Report) -> RocFigure | None:
    """The curves of the deciding contrasts, or of all where none decides; None where there are none."""
    known = {name: _sort(*rates) for name, rates in report.distributions.roc.items()}
    known = {name: rates for name, rates in known.items() if len(rates[0]) > 1}
    best = report.privacy.contrast if report.privacy is not None else None
    deciding = {metric.name for metric in list_metrics(report, is_deciding=True)} | {best}
    chosen = {name: rates for name, rates in known.items() if name in deciding} or known
    if not chosen:
        return None
    least = min((float(false[false > 0].min()) for false, _ in chosen.values() if (false > 0).any()), default=0.01)
    decades = min(4, max(2, math.ceil(-math.log10(least) - 1e-9)))
    across, up = Axis(-float(decades), 0.0, _ROC_LEFT, _ROC_RIGHT), Axis(0.0, 1.0, 244.0, 34.0)
    order = sorted(chosen, key=lambda name: name == best)
    step = (_ROC_RIGHT - _ROC_LEFT) / (len(order) + 1.6)

    def draw_curve(label: str, rates: Rates, style: int, place: int) -> RocCurve:
        logs = np.log10(np.maximum(rates[0], 10.0**-decades))
        places = [f"{across.place(x):g} {up.place(y):g}" for x, y in zip(logs.tolist(), rates[1].tolist(), strict=True)]
        return RocCurve(label, "M" + "L".join(dict.fromkeys(places)), style, round(_ROC_LEFT + place * step, 1))

    def read(name: str, false: float) -> str:
        return f"{100 * float(chosen[name][1][chosen[name][0] <= false].max(initial=0.0)):.0f}%"

    found = "; ".join(f"{name_contrast(name)} {read(name, 0.01)} at 1% and {read(name, 0.1)} at 10%" for name in order)
    diagonal = np.logspace(-decades, 0, 60)
    return RocFigure(
        description=f"Forget records found at these false positive rates: {found}.",
        curves=tuple(
            draw_curve(name_contrast(name), _thin(*chosen[name]), 0 if name == best else 1 + place % 5, place)
            for place, name in enumerate(order)
        ),
        chance=draw_curve("guessing", (diagonal, diagonal), 0, len(order)),
        one_percent_x=across.place(-2.0),
        across=tuple(
            Tick(across.place(-power), f"{100 * 10.0**-power:g}%", "end" if power == 0 else "middle")
            for power in range(decades, -1, -1)
        ),
        up=tuple(Tick(up.place(share), f"{100 * share:.0f}%", "end") for share in _QUARTERS),
    )


def draw_loss_roc(report: Report) -> LossRoc | None:
    """The curve of the loss with the AUC that the report gives for it; None without losses or held-out records."""
    metric, rates = report.metrics.get("loss"), report.distributions.roc.get("loss")
    if metric is None or rates is None or not math.isfinite(metric.effect):
        return None
    false, true = _thin(*_sort(*rates))
    if len(false) < 2:
        return None
    across, up = Axis(0.0, 1.0, _ROC_LEFT, _ROC_RIGHT), Axis(0.0, 1.0, 244.0, 34.0)
    places = [f"{across.place(x):g} {up.place(y):g}" for x, y in zip(false.tolist(), true.tolist(), strict=True)]
    line = "L".join(dict.fromkeys([f"{across.start:g} {up.start:g}", *places, f"{across.stop:g} {up.stop:g}"]))
    is_low, (low, high) = metric.effect < 0.5, metric.place.interval
    estimate = format_estimate(*((1 - metric.effect, (1 - high, 1 - low)) if is_low else (metric.effect, (low, high))))
    score = "their confidence in the right answer" + (", less what references have," if has_neutral(report) else ",")
    sentence = (
        f"An attacker who calls records forgotten by {score} {'lowest' if is_low else 'highest'} first, reaches an AUC "
        f"of {estimate}."
    )
    if is_low:
        sentence += f" In the tables it is {format_number(metric.effect, 2)}: there, highest comes first."
    return LossRoc(
        sentence=sentence,
        label=f"AUC {estimate}",
        path=f"M{line}",
        area=f"M{line}L{across.stop:g} {up.start:g}Z",
        across=tuple(Tick(across.place(x), f"{100 * x:.0f}%", "end" if x == 1 else "middle") for x in _QUARTERS),
        up=tuple(Tick(up.place(y), f"{100 * y:.0f}%", "end") for y in _QUARTERS),
    )


def _sort(false: FloatArray, true: FloatArray) -> Rates:
    """Rates that can be drawn, in rising order."""
    is_known = np.isfinite(false) & np.isfinite(true)
    order = np.lexsort((true[is_known], false[is_known]))
    return np.asarray(false)[is_known][order], np.asarray(true)[is_known][order]


def _thin(false: FloatArray, true: FloatArray) -> Rates:
    """Few enough points for a small page: half of them spread over the curve, half over its logarithm."""
    if len(false) <= _MOST_POINTS:
        return false, true
    even = np.linspace(0, len(false) - 1, _MOST_POINTS // 2).astype(int)
    early = np.geomspace(1, len(false), _MOST_POINTS // 2).astype(int) - 1
    kept = np.unique(np.concatenate([even, early]))
    return false[kept], true[kept]
