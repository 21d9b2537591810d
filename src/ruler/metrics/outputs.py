"""Output level: what a classifier's answers alone tell about forgetting."""

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions

CHANCE = 0.50
WINDOW = 0.05


def accuracy(predictions: Predictions) -> float:
    """How often is the highest score the true class? In [0, 1]; equal scores go to the first class.

    Args:
        predictions: Logits (n, n_classes) and labels (n,).

    Example:
        >>> accuracy(Predictions(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 0])))
        0.5
    """
    logits, labels = _check_predictions(predictions, "predictions")
    return float((logits.argmax(axis=1) == labels).mean())


def losses(predictions: Predictions) -> FloatArray:
    """How surprised is the classifier by each record? Cross-entropy in nats, shape (n,), at least 0.

    Example:
        >>> losses(Predictions(np.zeros((1, 2)), np.array([1]))).round(4).tolist()
        [0.6931]
    """
    logits, labels = _check_predictions(predictions, "predictions")
    return _compute_losses(logits, labels)


def membership_inference(forget: Predictions, test: Predictions, *, seed: int = 42) -> float:
    """Can an attacker tell forgotten records from never-seen ones by their loss?

    The losses of the forget records meet those of equally many test records, drawn without replacement (where
    there are fewer test records, as many forget records are drawn); a record below the median of all of them
    is called a member. The balanced accuracy of these calls: 0.50 is chance, above it forget records still
    look like members.

    Args:
        forget: Answers on the forget records.
        test: Answers of the same model on records it was never trained on.
        seed: Of the draw; the paper's is 42.

    Returns:
        Balanced accuracy in [0, 1].

    Raises:
        InputError: Empty, not finite, or labels that are no class.

    Example:
        >>> sure, unsure = np.array([[4.0, 0.0]] * 3), np.array([[1.0, 0.0]] * 3)
        >>> zeros = np.zeros(3, dtype=np.int64)
        >>> membership_inference(Predictions(sure, zeros), Predictions(unsure, zeros))
        1.0
    """
    member = _compute_losses(*_check_predictions(forget, "forget"))
    stranger = _compute_losses(*_check_predictions(test, "test"))
    return balance_membership(member, stranger, seed=seed)


def balance_membership(member: FloatArray, stranger: FloatArray, *, seed: int = 42) -> float:
    """`membership_inference` from the losses themselves, for models that are no classifiers.

    Args:
        member: (n,) losses of the forget records.
        stranger: (m,) losses of records the model was never trained on.
        seed: Of the draw.

    Example:
        >>> balance_membership(np.array([0.1, 0.2]), np.array([0.3, 0.4, 0.5]))
        1.0
    """
    size = min(len(member), len(stranger))
    draw = np.random.RandomState(seed)
    member, stranger = _draw(member, size, draw), _draw(stranger, size, draw)
    threshold = np.median(np.concatenate([member, stranger]))
    return float(((member < threshold).mean() + (stranger >= threshold).mean()) / 2)


def passes_output_window(mia: float) -> bool:
    """Does a membership accuracy, averaged over seeds, lie within 0.05 of chance? The paper's criterion.

    A value on the edge does not pass, and is recognised as lying there in spite of rounding.

    Example:
        >>> passes_output_window(0.53), passes_output_window(0.55), passes_output_window(0.45)
        (True, False, False)
    """
    return bool(abs(mia - CHANCE) < WINDOW - 1e-12)


def _draw(values: FloatArray, size: int, draw: np.random.RandomState) -> FloatArray:
    if len(values) == size:
        return values
    return values[draw.choice(len(values), size, replace=False)]


def _compute_losses(logits: FloatArray, labels: npt.NDArray[np.int64]) -> FloatArray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=1))
    value: FloatArray = log_total - shifted[np.arange(len(labels)), labels]
    return value


def _check_predictions(predictions: Predictions, name: str) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    logits = np.asarray(predictions.logits, dtype=np.float64)
    labels = np.asarray(predictions.labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or 0 in logits.shape:
        raise InputError(
            f"{name} must hold logits (n, n_classes) and labels (n,), at least one record; "
            f"got {logits.shape} and {labels.shape}."
        )
    n_bad = int((~np.isfinite(logits)).any(axis=1).sum())
    if n_bad:
        raise InputError(f"{name} must have finite logits; got NaN or inf in {n_bad} rows. Mend the model.")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise InputError(
            f"{name} must have integer labels from 0 to {logits.shape[1] - 1}; "
            f"got {labels.dtype} from {labels.min()} to {labels.max()}. Encode the classes first."
        )
    return logits, labels.astype(np.int64)
