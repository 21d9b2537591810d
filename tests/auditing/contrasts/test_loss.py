"""The loss: memory that no representation shows."""

import pytest
from tests.auditing.cases import DECIDING, make_cleared, strip

from ruler.auditing import audit


def test_memory_that_only_the_loss_shows_is_seen(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"unlearned": build_world(0).model(0.0, gain=1.0)})
    assert report.verdict == "residual"
    assert [name for name in DECIDING if report.metrics[name].verdict == "residual"] == ["loss"]
    assert report.metrics["loss"].share_left == pytest.approx(1.0, abs=0.2)


def test_losses_are_compared_even_if_the_oracles_are_unknown(build_world):
    given = make_cleared(build_world)
    remembers = build_world(0).model(0.0, gain=1.0)
    report = audit(**given | {"unlearned": remembers, "oracle": strip(given["oracle"], "losses")})
    assert report.verdict == report.metrics["loss"].verdict == "residual"
    assert report.metrics["loss"].value == pytest.approx(remembers[0].losses.mean())
    assert report.records["loss_gap"].isna().all()
