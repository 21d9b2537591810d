"""Plain training from a seed: the original model, and the oracle that never saw the forget records."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ruler.core.determinism import kept_modes, seeded
from ruler.core.errors import InputError
from ruler.core.types import Partition, Predictions
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.batches import Batches, Source, slice_rows
from ruler.training.checkpoints import CheckpointStore, State, describe_training
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import compute_logits, cross_entropy, use_precision


def train_classifier(
    build: Callable[[], nn.Module],
    data: Source,
    *,
    seed: int,
    settings: TrainingSettings | None = None,
    progress: bool = False,
    on_epoch: Callable[[int, float], None] | None = None,
) -> nn.Module:
    """Which model comes out of this architecture, these records and this seed?

    torch and NumPy are seeded, then ``build()`` makes the model, then it is trained: the same call gives the
    same weights, and the caller's random streams are left as they were.

    Args:
        build: Makes a fresh model, on the device where it shall be trained.
        data: A pair (X, y), a Dataset or a DataLoader.
        seed: Of initial weights, dropout, mini-batch order and augmentation.
        settings: None takes the paper's 50 full-batch epochs.
        progress: Show a bar, if stderr is a terminal.
        on_epoch: Called with (epoch, mean loss).

    Returns:
        The trained model, in eval mode.

    Raises:
        DivergedError: The loss left its bounds; the error carries the last good state.

    Example:
        >>> rows, labels = torch.eye(2), torch.tensor([0, 1])
        >>> fast = TrainingSettings(learning_rate=0.1)
        >>> model = train_classifier(lambda: nn.Linear(2, 2), (rows, labels), seed=0, settings=fast)
        >>> model(rows).argmax(1).tolist()
        [0, 1]
    """
    settings = settings or TrainingSettings()
    with seeded(seed):
        model = build()
        optimize(model, cross_entropy, {"data": data}, settings, seed=seed, progress=progress, on_epoch=on_epoch)
    return model.eval()


def train_tabular(
    inputs: npt.ArrayLike,
    labels: npt.ArrayLike,
    partition: Partition | None = None,
    *,
    seed: int,
    settings: TrainingSettings | None = None,
    store: CheckpointStore | None = None,
    progress: bool = False,
) -> TabularMLP:
    """The paper's TabularMLP: the original on all training rows, or the oracle on a partition's retain rows.

    Args:
        inputs: (n, n_features) training rows.
        labels: (n,) classes from 0.
        partition: None trains the original; a partition trains its oracle, from the same seed.
        seed: The training seed that original and oracle share.
        settings: None takes the paper's.
        store: Where finished models are kept and looked up; None trains always.
        progress: Show a bar, if stderr is a terminal.

    Returns:
        The trained model, in eval mode, on CPU.

    Raises:
        InputError: Inputs that are not 2-D, or not one label per row.

    Example:
        >>> rows, labels = np.eye(4), np.array([0, 1, 0, 1])
        >>> partition = Partition(forget=np.array([3]), retain=np.array([0, 1, 2]))
        >>> original = train_tabular(rows, labels, seed=0)
        >>> oracle = train_tabular(rows, labels, partition, seed=0)
        >>> bool((original.net[0].weight == oracle.net[0].weight).all())
        False
    """
    features, classes = np.asarray(inputs, dtype=np.float32), np.asarray(labels, dtype=np.int64)
    if features.ndim != 2 or classes.shape != (len(features),):
        raise InputError(
            f"inputs must be (n, n_features) with one label per row; got {features.shape} and {classes.shape}."
        )
    settings = settings or TrainingSettings()
    rows = slice(None) if partition is None else partition.retain
    data = features[rows], classes[rows]

    def build() -> TabularMLP:
        return TabularMLP(features.shape[1], n_classes=max(2, int(classes.max()) + 1))

    def train() -> State:
        return train_classifier(build, data, seed=seed, settings=settings, progress=progress).state_dict()

    with seeded(seed):
        model = build()
    if store is None:
        state = train()
    else:
        recipe = describe_training(model, features, classes, partition=partition, settings=settings, seed=seed)
        state = store.get_or_train(recipe, train)
    model.load_state_dict(state)
    return model.eval()


def predict(model: nn.Module, data: Source, *, batch_size: int = 4096, precision: str = "float32") -> Predictions:
    """What does the model say about these records, in their own order? Eval mode is forced, then put back.

    Args:
        model: A torch classifier.
        data: A pair (X, y), a Dataset, or a DataLoader in a fixed order.
        batch_size: Records per forward pass at most; does not change the answer beyond rounding.
        precision: Of the forward pass: ``float32``, or ``bfloat16`` for products in bfloat16.

    Example:
        >>> predict(nn.Linear(2, 3), (torch.eye(2), torch.tensor([0, 1]))).logits.shape
        (2, 3)
    """
    batches = Batches(data, model)
    logits, labels = [], []
    with kept_modes(model), torch.no_grad(), use_precision(precision, batches.device):
        model.eval()
        for inputs, answers in batches:
            starts = range(0, len(answers), batch_size)
            logits += [compute_logits(model, slice_rows(inputs, at, at + batch_size)) for at in starts]
            labels.append(answers)
    return Predictions(torch.cat(logits).double().cpu().numpy(), torch.cat(labels).cpu().numpy())
