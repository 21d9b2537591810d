"""Output level: what a classifier's answers alone tell about forgetting."""

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, Predictions


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


def losses(predictions: Predictions, name: str = "predictions") -> FloatArray:
    """How surprised is the classifier by each record? Cross-entropy in nats, (n,), at least 0; errors say ``name``.

    Example:
        >>> losses(Predictions(np.zeros((1, 2)), np.array([1]))).round(4).tolist()
        [0.6931]
    """
    logits, labels = _check_predictions(predictions, name)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=1))
    value: FloatArray = log_total - shifted[np.arange(len(labels)), labels]
    return value


def probabilities(predictions: Predictions, name: str = "predictions") -> FloatArray:
    """What does the classifier believe of each record? Softmax of the logits, (n, n_classes); errors say ``name``.

    Example:
        >>> probabilities(Predictions(np.log([[3.0, 1.0]]), np.array([0]))).round(4).tolist()
        [[0.75, 0.25]]
    """
    logits, _ = _check_predictions(predictions, name)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def margins(predictions: Predictions, name: str = "predictions") -> FloatArray:
    """How far ahead is the true class? log(p / (1 - p)) of its probability, (n,), without rounding near p = 1.

    Example:
        >>> margins(Predictions(np.log([[3.0, 1.0]]), np.array([0]))).round(4).tolist()
        [1.0986]
    """
    logits, labels = _check_predictions(predictions, name)
    rows = np.arange(len(labels))
    others = logits.copy()
    others[rows, labels] = -np.inf
    return np.asarray(logits[rows, labels] - np.logaddexp.reduce(others, axis=1))


def membership_inference(forget: Predictions, held_out: Predictions, *, seed: int = 42) -> float:
    """Can an attacker tell forgotten records from never-seen ones by their loss?

    The losses of the forget records meet those of equally many held-out records, drawn without replacement (where there
    are fewer held-out records, as many forget records are drawn). A record below the median of all of them is called a
    member. The balanced accuracy of these calls, in [0, 1]: 0.50 is chance; above it forget records still look like
    members.

    Args:
        forget: Answers on the forget records.
        held_out: Answers of the same model on records it was never trained on.
        seed: Of the draw; the paper's is 42.

    Raises:
        InputError: Empty, not finite, or labels that are no class.

    Example:
        >>> sure, unsure = np.array([[4.0, 0.0]] * 3), np.array([[1.0, 0.0]] * 3)
        >>> zeros = np.zeros(3, dtype=np.int64)
        >>> membership_inference(Predictions(sure, zeros), Predictions(unsure, zeros))
        1.0
    """
    return balance_membership(losses(forget, "forget"), losses(held_out, "held_out"), seed=seed)


def balance_membership(member: FloatArray, stranger: FloatArray, *, seed: int = 42) -> float:
    """`membership_inference` from the losses themselves, (n,) and (m,), for models that are no classifiers.

    Example:
        >>> balance_membership(np.array([0.1, 0.2]), np.array([0.3, 0.4, 0.5]))
        1.0
    """
    size = min(len(member), len(stranger))
    draw = np.random.RandomState(seed)
    member, stranger = (
        values if len(values) == size else values[draw.choice(len(values), size, replace=False)]
        for values in (member, stranger)
    )
    threshold = np.median(np.concatenate([member, stranger]))
    return float(((member < threshold).mean() + (stranger >= threshold).mean()) / 2)


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
        raise InputError(f"{name} must have finite logits; got NaN or inf in {n_bad} rows. Repair the model.")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise InputError(
            f"{name} must have integer labels from 0 to {logits.shape[1] - 1}; "
            f"got {labels.dtype} from {labels.min()} to {labels.max()}. Encode the classes first."
        )
    return logits, labels.astype(np.int64)
