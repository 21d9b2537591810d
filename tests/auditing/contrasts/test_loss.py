"""What the model says: memory that no representation shows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit
from tests.auditing.cases import FAST, SOUND, make_cleared, strip

from ruler.auditing import audit, audit_evidence, gather_evidence
from ruler.auditing.contrasts.loss import compress_confidence, score_answers
from ruler.core.types import Embeddings


def test_memory_that_only_the_loss_shows_is_seen(build_world):
    given = make_cleared(build_world)
    report = audit(**given | {"unlearned": build_world(0).model(0.0, gain=1.0)})
    assert (report.verdict, report.outputs.verdict, report.layers.verdict) == ("residual", "residual", "erased")
    assert report.outputs.remaining.contrast == "loss"
    for one in report.metrics["loss"].remaining.values():
        assert one.low < 1.0 < one.high


def test_losses_are_compared_even_if_the_oracles_are_unknown(build_world):
    given = make_cleared(build_world)
    remembers = build_world(0).model(0.0, gain=1.0)
    report = audit(**given | {"unlearned": remembers, "oracle": strip(given["oracle"], "losses")})
    assert report.verdict == report.metrics["loss"].verdict == "residual"
    assert report.metrics["loss"].value == pytest.approx(remembers[0].losses.mean())
    assert report.records["loss_gap"].isna().all()


def test_confidence_is_the_logit_whose_large_values_are_compressed():
    chance = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6])
    assert compress_confidence(-np.log(chance)) == pytest.approx(np.arcsinh(logit(chance)), rel=1e-9)
    assert compress_confidence(-np.log(chance)) == pytest.approx(-compress_confidence(-np.log1p(-chance)), rel=1e-6)


def test_confidence_falls_with_the_loss_and_is_finite_for_all_losses():
    losses = np.array([0.0, 1e-300, 1e-13, 1e-6, 0.1, 0.693, 1.0, 5.0, 27.0, 28.0, 800.0])
    found = compress_confidence(losses)
    assert np.isfinite(found).all()
    assert (np.diff(found) <= 0).all()
    assert (np.diff(found[2:9]) < 0).all()
    assert found[[0, -1]] == pytest.approx([np.arcsinh(27.6), -np.arcsinh(27.6)])


LOSSES = np.array([0.2, 0.5, 1.0, 3.0, 9.0])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("confidence", compress_confidence(LOSSES)), ("likelihood", -LOSSES), ("error", -np.sqrt(LOSSES)), (None, None)],
)
def test_a_loss_becomes_a_score_by_its_kind(kind, expected):
    parts = (Embeddings(SOUND[0], losses=LOSSES), *(Embeddings(rows, losses=np.ones(len(rows))) for rows in SOUND[1:]))
    evidence = gather_evidence(parts, loss_kind=kind)
    scores = score_answers(evidence.main, [])
    assert len(scores["retain"]) == len(evidence.main.members)
    expected = compress_confidence(LOSSES) if expected is None else expected
    assert scores["forget"] == pytest.approx(expected[evidence.order])


def test_losses_below_zero_are_taken_for_likelihoods():
    parts = tuple(Embeddings(rows, losses=np.linspace(-1, 2, len(rows))) for rows in SOUND)
    assert gather_evidence(parts).main.loss_kind == "likelihood"
    assert gather_evidence(tuple(replace(one, losses=one.losses + 1) for one in parts)).main.loss_kind == "confidence"


@pytest.mark.parametrize("knows", [False, True])
def test_what_comes_back_after_relearning_judges_the_layers_without_an_oracle(build_world, knows):
    world = build_world(0)

    def relearn(gain):
        return dict(zip(("forget", "retain", "held_out"), world.cut(0.5 * world.lose(gain)), strict=True))

    relearned = {"unlearned": relearn(2.0 if knows else 0.0), "original": relearn(2.0), "reference": relearn(0.0)}
    models = {"original": world.model(gain=2.0), "reference": world.model(gain=0.0)}
    evidence = gather_evidence(world.model(gain=0.0), **models, relearned=relearned, settings=FAST)
    report = audit_evidence(evidence)
    assert report.layers.verdict == ("residual" if knows else "erased")
    assert report.layers.remaining.contrast == "relearned"
    assert report.layers.remaining.value == pytest.approx(float(knows), abs=0.15)
    assert report.outputs.verdict == "erased"
