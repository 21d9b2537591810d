"""How well forget and held-out records can be told apart: by contrast, by layer, and at what rate of false alarms."""

import math
from dataclasses import dataclass

import numpy as np

from ruler.auditing.findings import LayerFinding, MetricFinding, Report
from ruler.auditing.report.display import format_estimate, format_number
from ruler.auditing.report.figures.axes import EDGE, WIDTH, Axis, Tick, fit_around_half, round_step
from ruler.auditing.report.wording import list_metrics, name_contrast
from ruler.core.types import FloatArray

_MOST_DEPTHS = 12
_MOST_POINTS = 160
_QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)
_ROC_LEFT = 48.0
_ROC_RIGHT = WIDTH - 12.0

Rates = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class LayerProfile:
    """One contrast at every layer that was read.

    Args:
        across: Scale of the depth, the first layer being 1.
        up: Scale of the AUC.
        strongest: Depth of the layer that differs most, if it is known.
        line: Path through the AUCs.
        original: Path through the original model's; empty where it was not given.
        depths: Ticks below.
    """

    metric: MetricFinding
    across: Axis
    up: Axis
    strongest: int | None
    sentence: str
    line: str
    original: str
    depths: tuple[Tick, ...]


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


def fit_effects(report: Report) -> Axis | None:
    """A scale for the deciding contrasts' AUCs and the margin; None where no AUC is known."""
    metrics = [metric for metric in list_metrics(report, is_deciding=True) if math.isfinite(metric.effect)]
    if not metrics:
        return None
    ends = [
        end for m in metrics for end in (m.effect, m.spread, m.original_effect, *m.effect_interval, *m.spread_interval)
    ]
    return fit_around_half(ends, report.settings.margin, start=EDGE, stop=WIDTH - EDGE)


def draw_layers(report: Report) -> list[LayerProfile]:
    """A profile per deciding contrast that was read at two layers or more."""
    metrics = [m for m in list_metrics(report, is_deciding=True) if len(m.layers) > 1]
    return [_draw_profile(m, report.settings.margin) for m in metrics if any(math.isfinite(e.effect) for e in m.layers)]


def _draw_profile(metric: MetricFinding, margin: float) -> LayerProfile:
    layers = metric.layers
    across = Axis(1.0, float(len(layers)), 54.0, WIDTH - 20.0)
    ends = [end for one in layers for end in (one.effect, one.original_effect, *one.effect_interval)]
    up = fit_around_half(ends, margin, start=200.0, stop=30.0)
    strongest = next((depth for depth, one in enumerate(layers, start=1) if one.layer == metric.layer), None)
    step = 1 if len(layers) <= _MOST_DEPTHS else max(1, int(round_step(len(layers) / 6)))

    def trace(effects: list[float | None]) -> str:
        places = [
            f"{across.place(depth):g} {up.place(effect):g}"
            for depth, effect in enumerate(effects, start=1)
            if effect is not None and math.isfinite(effect)
        ]
        return "M" + "L".join(places) if len(places) > 1 else ""

    return LayerProfile(
        metric=metric,
        across=across,
        up=up,
        strongest=strongest,
        sentence=_say_strongest(layers[strongest - 1], strongest, len(layers))
        if strongest
        else f"Read at {len(layers)} layers.",
        line=trace([one.effect for one in layers]),
        original=trace([one.original_effect for one in layers]),
        depths=tuple(
            Tick(across.place(depth), str(depth), "middle")
            for depth in range(1, len(layers) + 1)
            if depth % step == 0 or depth == 1
        ),
    )


def _say_strongest(found: LayerFinding, depth: int, n_layers: int) -> str:
    numbers = f"AUC {format_estimate(found.effect, found.effect_interval)}"
    if math.isfinite(found.spread) and abs(found.spread - 0.5) > abs(found.effect - 0.5):
        numbers = f"AUC of spread {format_estimate(found.spread, found.spread_interval)}"
    return f"Strongest at {found.layer}, layer {depth} of {n_layers} ({numbers})."


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
    is_low, (low, high) = metric.effect < 0.5, metric.effect_interval
    estimate = format_estimate(*((1 - metric.effect, (1 - high, 1 - low)) if is_low else (metric.effect, (low, high))))
    score = "the rank of their loss, less its rank in the oracle," if report.pairing is not None else "their loss,"
    sentence = (
        f"An attacker who calls records forgotten by {score} {'lowest' if is_low else 'highest'} first, reaches an AUC "
        f"of {estimate}."
    )
    if metric.test == "hybrid":
        sentence += " This AUC is 0.5 plus what the oracles do not show; the curve is that of this model alone."
    elif is_low:
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
