"""From values to places on paper: scales, round ticks and bars."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ruler.core.types import FloatArray

WIDTH = 440.0
EDGE = 10.0


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str
    anchor: str


@dataclass(frozen=True)
class Bar:
    """A rectangle of a histogram."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Axis:
    """A scale from ``low`` to ``high``, across the drawing unless ``start`` and ``stop`` say otherwise.

    Example:
        >>> Axis(0.0, 1.0).place(0.5), Axis(0.0, 1.0, start=200.0, stop=20.0).place(0.5)
        (220.0, 110.0)
    """

    low: float
    high: float
    start: float = EDGE
    stop: float = WIDTH - EDGE

    def place(self, value: float) -> float:
        """Where a value stands, held within the drawing."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start), 2)

    def find_ticks(self, most: int = 5) -> tuple[Tick, ...]:
        """At most ``most`` round values, labelled with as many decimals as tell them apart.

        Example:
            >>> [tick.label for tick in Axis(0.9912, 1.0).find_ticks()]
            ['0.992', '0.994', '0.996', '0.998', '1.000']
        """
        step = round_step((self.high - self.low) / most)
        decimals = max(0, -math.floor(math.log10(step) + 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return tuple(self._label(number * step, decimals) for number in range(first, last + 1))

    def _label(self, value: float, decimals: int) -> Tick:
        at = self.place(value)
        text = f"{value:.{decimals}f}"
        half = 4.0 * len(text)  # about half the width of the label
        anchor = "start" if at < half else "end" if at > WIDTH - half else "middle"
        return Tick(at, text.replace("-", "\u2212") if float(text) else text.lstrip("-"), anchor)


def round_step(least: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is not under ``least``.

    Example:
        >>> round_step(0.3), round_step(6)
        (0.5, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def draw_bars(shares: FloatArray, base: float, height: float) -> tuple[Bar, ...]:
    """Bars side by side across the drawing; a share of 1 is as high as ``height``."""
    width = (WIDTH - 2 * EDGE) / len(shares)
    return tuple(
        Bar(round(EDGE + i * width, 2), round(base - share * height, 2), round(width, 2), round(share * height, 2))
        for i, share in enumerate(shares.tolist())
        if share > 0
    )


def fit_around_half(values: Iterable[float | None], margin: float, *, start: float, stop: float) -> Axis:
    """A scale for AUCs with 0.5 in its middle, wide enough for the margin and for these values."""
    reach = max(
        [2 * margin, 0.2, *(abs(value - 0.5) + 0.03 for value in values if value is not None and value == value)]
    )
    return Axis(0.5 - min(reach, 0.5), 0.5 + min(reach, 0.5), start, stop)


def keep_finite(values: FloatArray) -> FloatArray:
    """The values that can be drawn."""
    numbers = np.asarray(values, dtype=np.float64)
    return numbers[np.isfinite(numbers)]
