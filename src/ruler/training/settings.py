"""How a model is optimised: settings that are checked when they are made. Needs no torch."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.registry import Registry

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


def checked(default: Any, check: Callable[[Any, str], object]) -> Any:
    """A setting whose value is checked, in subclasses with another default too; ``check`` takes it and its name.

    Example:
        >>> @dataclass(frozen=True)
        ... class MySettings(TrainingSettings):
        ...     strength: float = positive(1.0)
        >>> MySettings(strength=0.0)
        Traceback (most recent call last):
        ruler.core.errors.InputError: strength must be a finite number above 0; got 0.0.
    """
    return field(default=default, metadata={"check": check})


def positive(default: float) -> Any:
    """A setting above 0."""
    return checked(default, partial(check_number, minimum=0, is_strict=True))


def not_negative(default: float) -> Any:
    """A setting of at least 0."""
    return checked(default, partial(check_number, minimum=0))


def count(default: int | None, *, least: int = 1) -> Any:
    """A setting that is a whole number, or None if that is its default."""

    def check(value: Any, name: str) -> None:
        if value is not None or default is not None:
            check_number(value, name, minimum=least, is_whole=True)

    return checked(default, check)


def fraction(default: float) -> Any:
    """A setting strictly between 0 and 1."""

    def check(value: float, name: str) -> None:
        check_number(value, name, minimum=0, is_strict=True)
        if value >= 1:
            raise InputError(f"{name} must be below 1; got {value!r}.")

    return checked(default, check)


def one_of(default: str, known: Registry[Any]) -> Any:
    """A setting that names an entry of a table."""
    return checked(default, lambda name, _: known[name])


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

    epochs: int = count(50)
    learning_rate: float = positive(1e-3)
    batch_size: int | None = count(None)
    weight_decay: float = not_negative(0.0)
    optimizer: str = one_of("adam", OPTIMIZERS)
    momentum: float = not_negative(0.0)
    loss_bound: float = positive(1e4)
    _: KW_ONLY
    precision: str = one_of("float32", PRECISIONS)
    schedule: str = one_of("constant", SCHEDULES)
    records_per_epoch: int | None = count(None)
    augment: str = one_of("none", AUGMENTATIONS)

    def __post_init__(self) -> None:
        for kind in type(self).__mro__:
            for entry in getattr(kind, "__dataclass_fields__", {}).values():
                if "check" in entry.metadata:
                    entry.metadata["check"](getattr(self, entry.name), entry.name)
