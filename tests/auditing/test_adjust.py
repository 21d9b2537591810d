"""What models that never saw the records show of them, taken away."""

import numpy as np
import pytest
from tests.auditing.cases import SOUND

from ruler.auditing import gather_evidence
from ruler.auditing.adjust import span_neutral, subtract_references
from ruler.core.types import Embeddings

SIDES = {"forget": 12, "held_out": 60, "retain": 30}


def draw(random, n_references=1, weight=1.0, sizes=SIDES):
    """Scores that follow the references' scores, and the references."""
    references = [{side: random.normal(size=n) for side, n in sizes.items()} for _ in range(n_references)]
    scores = {
        side: 0.5 + weight * sum(one[side] for one in references) + 0.1 * random.normal(size=n)
        for side, n in sizes.items()
    }
    return scores, references


@pytest.mark.parametrize("n_references", [1, 2, 4])
def test_each_held_out_record_is_predicted_by_a_fit_without_itself(random, n_references):
    scores, references = draw(random, n_references, 0.7)
    found = subtract_references(scores, references, is_fitted=True)
    columns = {side: np.column_stack([np.ones(n), *(one[side] for one in references)]) for side, n in SIDES.items()}
    for left_out in (0, 31, 59):
        rest = np.arange(60) != left_out
        weights = np.linalg.lstsq(columns["held_out"][rest], scores["held_out"][rest], rcond=None)[0]
        own = scores["held_out"][left_out] - columns["held_out"][left_out] @ weights
        assert found["held_out"][left_out] == pytest.approx(own)
    weights = np.linalg.lstsq(columns["held_out"], scores["held_out"], rcond=None)[0]
    for side in ("forget", "retain"):
        assert found[side] == pytest.approx(scores[side] - columns[side] @ weights)
    assert found["forget"].std() < 0.2 < scores["forget"].std()


def test_forget_records_have_no_part_in_the_fit(random):
    scores, references = draw(random)
    found = subtract_references(scores, references, is_fitted=True)
    moved = subtract_references(scores | {"forget": scores["forget"] + 9.0}, references, is_fitted=True)
    assert moved["held_out"].tolist() == found["held_out"].tolist()
    assert moved["forget"] == pytest.approx(found["forget"] + 9.0)


@pytest.mark.parametrize(
    ("n_references", "n_held_out", "is_fitted", "is_difference"),
    [(1, 20, True, False), (1, 19, True, True), (1, 60, False, True), (3, 40, True, False), (3, 39, True, True)],
)
def test_with_few_or_unlike_records_the_mean_is_subtracted_as_it_is(
    random, n_references, n_held_out, is_fitted, is_difference
):
    scores, references = draw(random, n_references, sizes=SIDES | {"held_out": n_held_out})
    found = subtract_references(scores, references, is_fitted=is_fitted)
    for side, own in scores.items():
        plain = own - np.mean([one[side] for one in references], axis=0)
        assert np.allclose(found[side], plain) == is_difference


def test_without_references_scores_are_what_they_were(random):
    scores, _ = draw(random)
    assert subtract_references(scores, [], is_fitted=True) is scores


def test_references_that_say_the_same_or_nothing_do_no_harm(random):
    scores, references = draw(random)
    once = subtract_references(scores, references, is_fitted=True)
    twice = subtract_references(scores, references * 2, is_fitted=True)
    constant = {side: np.zeros(n) for side, n in SIDES.items()}
    beside = subtract_references(scores, [*references, constant], is_fitted=True)
    for side in SIDES:
        assert twice[side] == pytest.approx(once[side])
        assert beside[side] == pytest.approx(once[side])
    bare = subtract_references(scores, [constant], is_fitted=True)
    assert bare["forget"] == pytest.approx(scores["forget"] - scores["held_out"].mean())


@pytest.mark.parametrize(
    ("groups", "n"), [(None, 15), ({"forget": np.arange(5) // 2, "held_out": np.arange(10) // 5}, 5)]
)
def test_columns_of_a_neutral_model_are_orthonormal_and_few(groups, n):
    losses = tuple(Embeddings(rows, losses=np.abs(rows).sum(axis=1)) for rows in SOUND)
    assert span_neutral(gather_evidence(SOUND, groups=groups), "").shape == (n, 0)
    for neutral in ({"oracle": losses}, {"reference": losses}):
        found = span_neutral(gather_evidence(losses, **neutral, groups=groups), "")
        assert found.shape == (n, 1 + n // 10)
        assert found.T @ found == pytest.approx(np.eye(found.shape[1]), abs=1e-12)
        ones = np.ones(n)
        assert found @ (found.T @ ones) == pytest.approx(ones)


def test_ranks_of_a_neutral_models_losses_and_lengths_are_taken_out(random):
    rows = tuple(np.split(random.normal(size=(260, 4)), [60, 160]))
    oracle = tuple(Embeddings(part, losses=random.random(len(part))) for part in rows)
    evidence = gather_evidence(rows, oracle=oracle)
    found = span_neutral(evidence, "")
    assert found.shape == (160, 1 + 2 + 4)  # loss, norm, four components
    neutral = evidence.neutral
    for own in (neutral.losses, neutral.log_norms):
        joined = np.concatenate([own["forget"], own["held_out"]])
        ranks = joined.argsort().argsort().astype(float)
        assert found @ (found.T @ ranks) == pytest.approx(ranks)
