"""A contrast must have been seen where there was something to see."""

from dataclasses import replace

from tests.auditing.cases import DECIDING, FAST, make_cleared, strip

from ruler.auditing import audit


def test_what_could_not_be_seen_before_cannot_be_shown_to_be_gone(build_world):
    world = build_world(0)
    unlearned, oracle, original = (world.model(gain=0.0) for _ in range(3))
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    assert all(report.metrics[name].verdict == "erased" for name in DECIDING)
    assert report.verdict == "inconclusive"
    assert report.reason.startswith("Nothing could be seen before unlearning either")
    assert any("Other layers" in need for need in report.needs)


def test_known_members_stand_in_for_the_original(build_world):
    given = make_cleared(build_world) | {"original": None}
    report = audit(**given)
    assert report.verdict == "erased"
    assert {name for name in DECIDING if report.metrics[name].sensitivity.is_seen} == {"loss"}
    assert report.metrics["loss"].sensitivity.source == "known members"
    # without losses nothing tells retain from held-out records: blind, and nothing is cleared
    blind = audit(**given | {name: strip(given[name], "losses") for name in ("unlearned", "oracle")})
    assert all(blind.metrics[name].verdict == "erased" for name in ("m2", "m4", "norm"))
    assert blind.verdict == "inconclusive"
    assert "none can clear it" in blind.reason
    assert any(need.startswith("The original model") for need in blind.needs)
    assert any(need.startswith("Losses of all records") for need in blind.needs)


def test_most_of_the_originals_contrast_must_be_shown_to_be_gone(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"settings": replace(FAST, share_limit=0.1)})
    assert report.verdict == "inconclusive"
    assert "may be left" in report.reason
    assert report.metrics["loss"].share_left_upper > 0.1
    assert any(need.startswith("About ") for need in report.needs)
