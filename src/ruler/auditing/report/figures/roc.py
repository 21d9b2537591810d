"""What an attacker pays in false alarms for each forget record that is found."""

import math
from dataclasses import dataclass

import numpy as np

from ruler.auditing.findings import Report
from ruler.auditing.report.figures.axes import WIDTH, Axis, Tick
from ruler.auditing.report.wording import DECIDING, name_contrast
from ruler.core.types import FloatArray

LEFT = 48.0
RIGHT = WIDTH - 12.0
TOP = 34.0
BASE = 244.0
_MOST_POINTS = 160


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
        sentence: What the drawing says.
        description: Rates of every contrast, for readers who cannot see it.
        curves: One per contrast, the best one last so that it lies on top.
        chance: Path of guessing, the diagonal.
        chance_key_x: Of its entry in the key.
        one_percent_x: Where 1% false positives lie.
        across: Ticks of the false positive rate.
        up: Ticks of the true positive rate.
    """

    sentence: str
    description: str
    curves: tuple[RocCurve, ...]
    chance: str
    chance_key_x: float
    one_percent_x: float
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]


def draw_roc(report: Report) -> RocFigure | None:
    """The curves of the deciding contrasts, or of all where none decides; None where there are none."""
    known = {name: _clean(*rates) for name, rates in report.distributions.roc.items()}
    known = {name: rates for name, rates in known.items() if len(rates[0]) > 1}
    best = report.privacy.contrast if report.privacy is not None else None
    chosen = {name: rates for name, rates in known.items() if name in DECIDING or name == best} or known
    if not chosen:
        return None
    least = min((float(false[false > 0].min()) for false, _ in chosen.values() if (false > 0).any()), default=0.01)
    decades = min(4, max(2, math.ceil(-math.log10(least) - 1e-9)))
    across, up = Axis(-float(decades), 0.0, LEFT, RIGHT), Axis(0.0, 1.0, BASE, TOP)

    def trace(false: FloatArray, true: FloatArray) -> str:
        logs = np.log10(np.maximum(false, 10.0**-decades))
        places = [f"{across.place(x):g} {up.place(y):g}" for x, y in zip(logs.tolist(), true.tolist(), strict=True)]
        return "M" + "L".join(dict.fromkeys(places))

    order = sorted(chosen, key=lambda name: name == best)
    step = (RIGHT - LEFT) / (len(order) + 1.6)
    curves = tuple(
        RocCurve(
            label=name_contrast(name),
            path=trace(*_thin(*chosen[name])),
            style=0 if name == best else 1 + place % 5,
            key_x=round(LEFT + place * step, 1),
        )
        for place, name in enumerate(order)
    )
    diagonal = np.logspace(-decades, 0, 60)
    found = "; ".join(
        f"{name_contrast(name)} {_read(chosen[name], 0.01)} at 1% and {_read(chosen[name], 0.1)} at 10%"
        for name in order
    )
    return RocFigure(
        sentence="Above the dashed line, a contrast finds more forget records than guessing does at the same rate of "
        "false alarms.",
        description=f"Forget records found at these false positive rates: {found}.",
        curves=curves,
        chance=trace(diagonal, diagonal),
        chance_key_x=round(LEFT + len(order) * step, 1),
        one_percent_x=across.place(-2.0),
        across=tuple(
            Tick(across.place(-power), f"{100 * 10.0**-power:g}%", "end" if power == 0 else "middle")
            for power in range(decades, -1, -1)
        ),
        up=tuple(Tick(up.place(share), f"{100 * share:.0f}%", "end") for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
    )


def _clean(false: FloatArray, true: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Rates that can be drawn, in rising order."""
    is_known = np.isfinite(false) & np.isfinite(true)
    order = np.lexsort((true[is_known], false[is_known]))
    return np.asarray(false)[is_known][order], np.asarray(true)[is_known][order]


def _thin(false: FloatArray, true: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Few enough points for a small page: half of them spread over the curve, half over its logarithm."""
    if len(false) <= _MOST_POINTS:
        return false, true
    even = np.linspace(0, len(false) - 1, _MOST_POINTS // 2).astype(int)
    early = np.geomspace(1, len(false), _MOST_POINTS // 2).astype(int) - 1
    kept = np.unique(np.concatenate([even, early]))
    return false[kept], true[kept]


def _read(rates: tuple[FloatArray, FloatArray], false: float) -> str:
    return f"{100 * float(rates[1][rates[0] <= false].max(initial=0.0)):.0f}%"
