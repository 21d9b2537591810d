"""How far along the way from the oracle to the original."""

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import FAST

from ruler.auditing import audit, gather_evidence
from ruler.auditing.contrasts.tangent import score_tangent


def score(unlearned, oracle, original):
    """Scores of the forget records over the original's mean."""
    evidence = gather_evidence(unlearned, oracle=oracle, original=original)
    model, oracles = evidence.main, evidence.main_oracles
    assert model.original is not None
    before = score_tangent(model.original, oracles)
    return score_tangent(model, oracles)["forget"] / before["forget"].mean()


@pytest.fixture
def world(build_world):
    return build_world(0, sizes=(200, 400, 200))


def test_the_score_is_the_projection_on_the_tangent_at_the_oracles_row(world):
    unlearned, oracle, original = world.model(0.3), world.model(), world.model(0.6)
    evidence = gather_evidence(unlearned, oracle=oracle, original=original)
    found = score_tangent(evidence.main, evidence.main_oracles)
    assert set(found) == {"forget", "held_out"}
    u, o, b = (rows[0] / np.linalg.norm(rows[0], axis=1, keepdims=True) for rows in (unlearned, oracle, original))
    d = (b - o) - ((b - o) * o).sum(axis=1, keepdims=True) * o
    expected = ((u - o) * d).sum(axis=1)
    assert found["forget"] == pytest.approx(expected[evidence.order])


def test_the_oracle_reads_zero_and_the_original_one(world):
    oracle, original = world.model(), world.model(0.6)
    assert score(oracle, oracle, original) == pytest.approx(np.zeros(200), abs=1e-12)
    assert score(original, oracle, original).mean() == pytest.approx(1.0)
    assert abs(score(world.model(), oracle, original).mean()) < 0.15


def test_an_unrelated_model_reads_zero_on_average(world, random):
    oracle, original = world.model(), world.model(0.6)
    unrelated = tuple(random.normal(size=rows.shape) for rows in oracle)
    found = score(unrelated, oracle, original)
    assert found.mean() == pytest.approx(0, abs=4 * found.std() / np.sqrt(200))
    # a plain projection on the way from oracle to original would read one half
    o, b, u = (rows[0] / np.linalg.norm(rows[0], axis=1, keepdims=True) for rows in (oracle, original, unrelated))
    plain = ((u - o) * (b - o)).sum(axis=1) / np.square(b - o).sum(axis=1).mean()
    assert plain.mean() == pytest.approx(0.5, abs=0.15)


def test_what_is_nearer_to_the_original_reads_more(world):
    oracle, original = world.model(), world.model(0.6)
    found = [
        score(tuple(one + c * (two - one) for one, two in zip(oracle, original, strict=True)), oracle, original).mean()
        for c in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    assert np.diff(found).min() > 0.1


def test_lengths_and_one_rotation_of_all_models_change_nothing(world):
    models = world.model(0.3), world.model(), world.model(0.6)
    turn = ortho_group.rvs(6, random_state=0)
    turned = [tuple(7.0 * rows @ turn for rows in model) for model in models]
    assert np.sort(score(*turned)) == pytest.approx(np.sort(score(*models)), abs=1e-9)


def test_with_two_oracles_no_chance_of_one_run_stands_on_both_sides(world):
    unlearned, original = world.model(), world.model(0.6)
    oracles = [world.model(), world.model()]
    evidence = gather_evidence(unlearned, oracle=oracles, original=original)
    found = score_tangent(evidence.main, evidence.main_oracles)["forget"]
    u, b, *o = (rows[0] / np.linalg.norm(rows[0], axis=1, keepdims=True) for rows in (unlearned, original, *oracles))
    parts = []
    for here, there in ((0, 1), (1, 0)):
        d = (b - o[here]) - ((b - o[here]) * o[here]).sum(axis=1, keepdims=True) * o[here]
        parts.append(((u - o[there]) * d).sum(axis=1))
    assert found == pytest.approx(np.mean(parts, axis=0)[evidence.order])


def test_models_of_other_axes_are_turned(world):
    unlearned, oracle, original = world.model(0.5), world.model(), world.model(0.6)
    turn = ortho_group.rvs(6, random_state=0)
    moved = tuple(rows @ turn for rows in oracle)
    plain, turned = (score(unlearned, one, original).mean() for one in (oracle, moved))
    assert turned == pytest.approx(plain, abs=0.1)


@pytest.mark.parametrize(("mark", "verdict"), [(0.0, "erased"), (0.5, "residual")])
def test_without_classes_it_decides_about_the_layers(build_world, mark, verdict):
    world = build_world(0)
    report = audit(world.model(mark), oracle=world.model(), original=world.model(0.5), settings=FAST)
    assert report.metrics["tangent"].verdict == report.layers.verdict == verdict
    assert report.layers.remaining.value == pytest.approx(2 * mark, abs=0.2)
    assert list(report.metrics["tangent"].remaining) == ["original"]
