"""How a model is optimised: settings that are checked when they are made. Needs no torch."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from ruler.core.checks import check_number
from ruler.core.registry import Registry


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is optimised; the defaults are the paper's full-batch training.

    Args:
        epochs: Passes over the (first) source of records.
        learning_rate: Step size of the optimiser; the largest one of a schedule.
        batch_size: Records per step; None takes all at once.
        weight_decay: As the optimiser understands it.
        optimizer: ``adam``, ``adamw`` or ``sgd``.
        momentum: Of ``sgd`` alone.
        loss_bound: A loss beyond this size, on either side of zero, counts as diverged.
        precision: ``float32``, or ``bfloat16`` for products in bfloat16 (autocast); weights, optimiser and loss
            keep their own type.
        schedule: How the rate moves from step to step: ``constant``, ``cosine`` (down to zero) or ``one_cycle``
            (up from a 25th for 30% of the steps, then down to nearly zero).
        records_per_epoch: An epoch is a fresh draw, without replacement, of this many records of the first
            source; None takes them all.
        augment: ``none``; for images of the first source also ``crop`` (moved by up to 4 pixels at random) or
            ``flip_crop`` (mirrored at random too), anew in every epoch.

    Example:
        >>> TrainingSettings(epochs=0)
        Traceback (most recent call last):
        ruler.core.errors.InputError: epochs must be a whole number of at least 1; got 0.
    """

    epochs: int = 50
    learning_rate: float = 1e-3
    batch_size: int | None = None
    weight_decay: float = 0.0
    optimizer: str = "adam"
    momentum: float = 0.0
    loss_bound: float = 1e4
    _: KW_ONLY
    precision: str = "float32"
    schedule: str = "constant"
    records_per_epoch: int | None = None
    augment: str = "none"

    def __post_init__(self) -> None:
        check_number(self.epochs, "epochs", minimum=1, is_whole=True)
        check_number(self.learning_rate, "learning_rate", minimum=0, is_strict=True)
        for name in ("batch_size", "records_per_epoch"):
            if getattr(self, name) is not None:
                check_number(getattr(self, name), name, minimum=1, is_whole=True)
        check_number(self.weight_decay, "weight_decay", minimum=0)
        check_number(self.momentum, "momentum", minimum=0)
        check_number(self.loss_bound, "loss_bound", minimum=0, is_strict=True)
        OPTIMIZERS[self.optimizer]
        PRECISIONS[self.precision]
        SCHEDULES[self.schedule]
        AUGMENTATIONS[self.augment]


OPTIMIZERS = Registry("optimizer", {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"})
"""Name -> the class in ``torch.optim``."""

PRECISIONS = Registry("precision", dict.fromkeys(("float32", "bfloat16")))

AUGMENTATIONS = Registry("augment", {"none": None, "crop": False, "flip_crop": True})
"""Name -> whether images are mirrored besides being moved; None leaves them as they are."""


def _follow_cosine(step: float, n_steps: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * step / n_steps))


def _follow_one_cycle(step: int, n_steps: int) -> float:
    peak = max(0.3 * n_steps - 1, 0.0)
    if step <= peak:
        return 1.0 if peak == 0 else 1 - (1 - 1 / 25) * _follow_cosine(step / peak, 1)
    return 4e-6 + (1 - 4e-6) * _follow_cosine((step - peak) / (n_steps - 1 - peak), 1)


SCHEDULES: Registry[Callable[[int, int], float]] = Registry(
    "schedule",
    {"constant": lambda step, n_steps: 1.0, "cosine": _follow_cosine, "one_cycle": _follow_one_cycle},
)
"""Name -> (step from 0, number of steps) -> the share of ``learning_rate`` that the step takes."""
