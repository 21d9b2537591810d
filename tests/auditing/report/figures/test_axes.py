"""Scales and round ticks."""

import pytest

from ruler.auditing.report.figures.axes import Axis


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.99, 1.0), (-1, 1), (0.999999, 1.0), (0.1999, 0.2003)])
def test_ticks_are_round_and_apart(low, high):
    ticks = Axis(low, high).find_ticks()
    labels = [tick.label for tick in ticks]
    assert 2 <= len(labels) <= 6
    assert len(set(labels)) == len(labels)
