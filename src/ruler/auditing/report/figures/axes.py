"""From values to places on paper: scales and round ticks."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

WIDTH = 440.0
EDGE = 10.0


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str
    anchor: str


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


def fit_around_half(values: Iterable[float | None], margin: float, *, start: float, stop: float) -> Axis:
    """A scale for AUCs with 0.5 in its middle, wide enough for the margin and for these values."""
    known = [abs(value - 0.5) + 0.03 for value in values if value is not None and not math.isnan(value)]
    reach = min(max(2 * margin, 0.2, *known), 0.5)
    return Axis(0.5 - reach, 0.5 + reach, start, stop)
