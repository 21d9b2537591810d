"""M4: records next to the nearest record that was kept."""

from tests.auditing.cases import FAST

from ruler.auditing import audit


def test_without_the_original_the_side_is_read(make_world):
    unlearned, _ = make_world(nearer=0.95)
    report = audit(unlearned, settings=FAST)
    assert list(report.metrics) == ["m4"]
    assert report.verdict == report.metrics["m4"].verdict == "residual"
    assert report.metrics["m4"].place.p_value == report.metrics["m4"].p_value <= 0.05
    assert report.layers.verdict == "residual"
    assert report.remaining is None  # it accuses, and does not tell how much
