import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.metrics.outputs import accuracy, balance_membership, losses, membership_inference


def make_predictions(n_records: int, seed: int = 0, n_classes: int = 3, scale: float = 5.0) -> Predictions:
    draw = np.random.default_rng(seed)
    return Predictions(draw.normal(0, scale, (n_records, n_classes)), draw.integers(0, n_classes, n_records))


def test_losses_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    predictions = make_predictions(50, scale=300.0)
    expected = torch.nn.functional.cross_entropy(
        torch.tensor(predictions.logits), torch.tensor(predictions.labels), reduction="none"
    )
    np.testing.assert_allclose(losses(predictions), expected.numpy(), atol=1e-12, rtol=1e-12)


def test_accuracy_equals_sklearn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    predictions = make_predictions(50)
    expected = metrics.accuracy_score(predictions.labels, predictions.logits.argmax(1))
    assert accuracy(predictions) == expected


def test_membership_equals_sklearn_on_the_papers_draw() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    forget, held_out = make_predictions(21, seed=1), make_predictions(60, seed=2)
    rows = np.random.RandomState(42).choice(60, 21, replace=False)
    pooled = np.concatenate([losses(forget), losses(held_out)[rows]])
    is_member = np.repeat([1, 0], 21)
    expected = metrics.balanced_accuracy_score(is_member, pooled < np.median(pooled))
    assert membership_inference(forget, held_out) == pytest.approx(expected, abs=1e-15)


def test_membership_draws_from_the_forget_records_when_they_are_more() -> None:
    few, many = make_predictions(12, seed=1), make_predictions(40, seed=2)
    assert membership_inference(few, many) == pytest.approx(1 - membership_inference(many, few), abs=1e-15)


def test_identical_losses_are_chance() -> None:
    same = Predictions(np.zeros((8, 2)), np.zeros(8, dtype=np.int64))
    assert membership_inference(same, same) == 0.5


@given(st.integers(2, 40), st.floats(-50, 50), st.floats(0.1, 3))
def test_a_shift_of_a_records_logits_changes_nothing(n_records: int, shift: float, scale: float) -> None:
    forget, held_out = make_predictions(n_records, 3, scale=scale), make_predictions(n_records, 4, scale=scale)
    moved = Predictions(forget.logits + shift, forget.labels)
    np.testing.assert_allclose(losses(moved), losses(forget), atol=1e-9)
    assert 0 <= membership_inference(forget, held_out) <= 1
    assert accuracy(moved) == accuracy(forget)


def test_torch_is_not_needed() -> None:
    code = "import sys, ruler.metrics.outputs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        (Predictions(np.zeros(3), np.zeros(3, int)), r"predictions must hold logits \(n, n_classes\)"),
        (Predictions(np.zeros((0, 2)), np.zeros(0, int)), "at least one record"),
        (Predictions(np.zeros((3, 2)), np.zeros(2, int)), r"got \(3, 2\) and \(2,\)"),
        (Predictions(np.array([[np.nan, 0]]), np.zeros(1, int)), "finite logits; got NaN or inf in 1 rows"),
        (Predictions(np.zeros((1, 2)), np.array([2])), "labels from 0 to 1; got int64 from 2 to 2"),
        (Predictions(np.zeros((1, 2)), np.array([0.5])), "integer labels"),  # type: ignore[arg-type]
    ],
)
def test_bad_predictions_are_named(predictions: Predictions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        losses(predictions)


def test_membership_names_the_argument_at_fault() -> None:
    good = make_predictions(3)
    with pytest.raises(InputError, match=r"^held_out must"):
        membership_inference(good, Predictions(np.zeros((1, 2)), np.array([5])))


def test_losses_at_the_median_are_called_strangers_by_the_papers_draw() -> None:
    member, stranger = np.array([1.0, 2.0, 2.0]), np.array([2.0, 2.0, 3.0])
    assert balance_membership(member, stranger) == pytest.approx((1 / 3 + 1) / 2)
    drawn = np.random.default_rng(0)
    member, stranger = drawn.normal(size=15), drawn.normal(size=80)
    assert balance_membership(member, stranger) == balance_membership(member, stranger, seed=42)
    assert len({balance_membership(member, stranger, seed=seed) for seed in range(8)}) > 1


def test_one_class_and_its_highest_label_are_allowed() -> None:
    assert losses(Predictions(np.zeros((2, 1)), np.zeros(2, dtype=np.int64))).tolist() == [0.0, 0.0]
    assert losses(Predictions(np.zeros((1, 3)), np.array([2]))).tolist() == pytest.approx([np.log(3)])
    with pytest.raises(InputError, match="labels from 0 to 2; got int64 from -1 to -1"):
        losses(Predictions(np.zeros((1, 3)), np.array([-1])))
    with pytest.raises(InputError, match="at least one record"):
        losses(Predictions(np.zeros((2, 0)), np.zeros(2, dtype=np.int64)))
