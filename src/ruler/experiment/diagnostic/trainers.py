"""How the models of a diagnostic cell are trained, unlearned and read; what the paper leaves open is chosen here.

The paper states batch size 256 for large tables, five seeds, and that 15% of the tokens of text are masked. It does not
print that text was trained for three epochs of 1,000 sentences at batch 16 and rate 2e-5 with weight decay 0.01, and
unlearned at 5e-5; that is how its authors ran it. All else is our choice, with its reason beside it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ruler.core.determinism import fixed_algorithms, full_precision, repeatable_only
from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.core.types import IndexArray
from ruler.data import DATASETS, ImageSet
from ruler.experiment.cell import Workplace
from ruler.experiment.diagnostic.data import Completing, DiagnosticData
from ruler.experiment.grid import Cell
from ruler.models import MODELS
from ruler.training.checkpoints import CheckpointStore
from ruler.training.classifier import train_classifier
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, UnlearningSettings, unlearn

S = TypeVar("S", bound=TrainingSettings)

LOSS_BOUND = 1e30  # ascent has no floor, and a displaced model is a finding: only what is nearly no number stops it
READ_BLOCK = 1024

TRAINING: Registry[TrainingSettings] = Registry(
    "architecture",
    {
        # The primary study's optimiser; test accuracy no longer rises after about 20 passes in mini batches.
        "tabular_mlp": TrainingSettings(epochs=20, batch_size=256),
        "residual_mlp": TrainingSettings(epochs=20, batch_size=256),
        # Transformers on tables want a smaller rate and decoupled decay (Gorishniy et al. 2021 use AdamW at 1e-4).
        "ft_transformer": TrainingSettings(
            epochs=10, batch_size=256, optimizer="adamw", learning_rate=3e-4, weight_decay=1e-5
        ),
        # Long enough to fit the training images, as a model that could memorise must.
        "small_cnn": TrainingSettings(epochs=20, batch_size=128),
        # The usual recipe for small images, shortened: one cycle of the rate does in 20 epochs what far longer runs do.
        "resnet18": TrainingSettings(
            epochs=20,
            batch_size=128,
            optimizer="sgd",
            learning_rate=0.05,
            momentum=0.9,
            weight_decay=5e-4,
            schedule="one_cycle",
            augment="flip_crop",
        ),
        "bert_mlm": TrainingSettings(
            epochs=3, batch_size=16, optimizer="adamw", learning_rate=2e-5, weight_decay=0.01, records_per_epoch=1000
        ),
        # TOFU's epochs, batch and decay; a model of 135 million parameters wants ten times the rate of its 7 billion.
        "causal_lm": TrainingSettings(
            epochs=5, batch_size=32, optimizer="adamw", learning_rate=1e-4, weight_decay=0.01
        ),
    },
)


def choose_training(cell: Cell) -> TrainingSettings:
    """The settings that a cell's original and oracle are trained with.

    Example:
        >>> cell = Cell("images", "svhn", "original", 0.05, 0, architecture="resnet18", precision="bfloat16")
        >>> choose_training(cell).augment, choose_training(cell).precision
        ('crop', 'bfloat16')
    """
    settings = replace(TRAINING[cell.architecture], batch_size=cell.batch_size, precision=cell.precision or "float32")
    if settings.augment == "flip_crop":
        dataset = DATASETS.get(cell.dataset)  # of a user's own images nobody knows whether they may be mirrored
        if dataset is None or (isinstance(dataset, ImageSet) and not dataset.is_mirrored_alike):
            settings = replace(settings, augment="crop")
    return shorten(settings, cell)


def choose_unlearning(cell: Cell) -> UnlearningSettings:
    """The method's settings for a cell: the paper's epochs and weights, in mini batches.

    Example:
        >>> cell = Cell("images", "svhn", "scrub", 0.05, 0, 5e-4, 128, architecture="resnet18", size="smoke")
        >>> choose_unlearning(cell).epochs
        1
    """
    kind: Any = METHODS[cell.method].settings
    others: dict[str, Any] = {} if cell.teacher_seed is None else {"teacher_seed": cell.teacher_seed}
    if cell.architecture == "causal_lm":  # the optimiser that it was trained with
        others |= {"optimizer": "adamw", "weight_decay": TRAINING[cell.architecture].weight_decay}
    settings: UnlearningSettings = kind(
        learning_rate=cell.learning_rate,
        batch_size=cell.batch_size,
        precision=cell.precision or "float32",
        loss_bound=LOSS_BOUND,
        records_per_epoch=TRAINING[cell.architecture].records_per_epoch,
        **others,
    )
    return shorten(settings, cell)


def shorten(settings: S, cell: Cell) -> S:
    """Settings for one epoch, and few records of it, if the cell only shows that it runs."""
    if cell.size != "smoke":
        return settings
    few = None if settings.records_per_epoch is None else 16
    return replace(settings, epochs=1, records_per_epoch=few)


@dataclass(frozen=True, eq=False)
class ModelOutputs:
    """What a model says of every record, in the order of the data.

    Args:
        rows: (n, p) representations, on the trainer's device.
        losses: (n,) of each record.
        hits: (n,) share of right answers of each record, 0 or 1 for a classifier.
        layers: Representations (n, p) by layer, where all were read.
        logits: (n, n_classes) of a classifier.
    """

    rows: torch.Tensor
    losses: npt.NDArray[np.float64]
    hits: npt.NDArray[np.float64]
    layers: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    logits: npt.NDArray[np.float64] | None = None


class Trainer(ABC):
    """What the engine asks for, whatever the models are made of."""

    choose_training: Callable[[Cell], TrainingSettings] = staticmethod(choose_training)
    choose_unlearning: Callable[[Cell], UnlearningSettings] = staticmethod(choose_unlearning)

    @abstractmethod
    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """Train a model on these records."""

    @abstractmethod
    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the model."""

    @abstractmethod
    def read(self, model: nn.Module) -> ModelOutputs:
        """Read its representations and answers."""

    def read_peers(
        self, model: nn.Module, forget: IndexArray, held_out: IndexArray, original: nn.Module | None = None
    ) -> dict[str, Any]:
        """Read what peers' metrics are computed from; empty for models that they are not for."""
        return {}


def repeat_exactly(device: str, *, has_pooling: bool = False) -> AbstractContextManager[None]:
    """A context in which training on a GPU gives the same weights every time; on a CPU it does anyway."""
    if device == "cpu":
        return nullcontext()
    return fixed_algorithms(torch) if has_pooling else repeatable_only(torch)


class ClassifierTrainer(Trainer):
    """Models of tables, images and faces.

    Args:
        data: Of the cells' dataset.
        device: Where models and records lie.
    """

    def __init__(self, data: DiagnosticData, device: str) -> None:
        assert data.labels is not None
        distinct, place = data.distinct
        self._data, self._device = data, device
        self._is_of_images = distinct.ndim == 4
        self._layout: dict[str, Any] = {}
        if self._is_of_images and device != "cpu":
            self._layout = {"memory_format": torch.channels_last}  # as tensor cores want them
        self._distinct = torch.from_numpy(distinct).to(device, **self._layout)
        self._place = torch.from_numpy(place).to(device)
        self._labels = torch.from_numpy(np.asarray(data.labels)).to(device)

    def pair(self, rows: IndexArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Records and their labels, on the device."""
        index = torch.from_numpy(rows).to(self._device)
        return self._distinct[self._place[index]], self._labels[index]

    def build(self, architecture: str) -> nn.Module:
        """A fresh model for these records."""
        return MODELS[architecture](self._data.inputs.shape[1:], self._data.n_classes)

    def make(self, architecture: str) -> nn.Module:
        """A fresh model on the device."""
        return self.build(architecture).to(self._device, **self._layout)

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """Train a classifier of the cell's architecture."""
        build = partial(self.make, cell.architecture)
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            return train_classifier(build, self.pair(rows), seed=seed, settings=self.choose_training(cell))

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """Apply the cell's method to the classifier."""
        settings = self.choose_unlearning(cell)
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            return unlearn(cell.method, model, forget=self.pair(forget), retain=self.pair(retain), settings=settings)

    @torch.inference_mode()
    @full_precision(torch)
    @fixed_algorithms(torch)
    def read(self, model: nn.Module) -> ModelOutputs:
        """Read representations and logits of every record in float32, in one pass.

        The representation is what enters the head, the last Linear that was made.
        """
        model.eval()
        caught: list[torch.Tensor] = []
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        if not linear:
            raise InputError("architecture must end in a Linear layer, its head; got a model without any.")
        head = linear[-1]
        handle = head.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
        try:
            logits = torch.cat([model(block) for block in torch.split(self._distinct, READ_BLOCK)])
        finally:
            handle.remove()
        answers = logits[self._place].double()
        losses = nn.functional.cross_entropy(answers, self._labels, reduction="none")
        hits = (answers.argmax(1) == self._labels).double()
        return ModelOutputs(
            torch.cat(caught)[self._place], losses.cpu().numpy(), hits.cpu().numpy(), logits=answers.cpu().numpy()
        )


def make_trainer(data: DiagnosticData, workplace: Workplace) -> Trainer:
    """The trainer for these records: of classifiers, or of masked or causal language models."""
    if data.language is None:
        return ClassifierTrainer(data, workplace.device)
    from ruler.experiment.diagnostic.language import CausalTrainer, LanguageTrainer  # need transformers

    if isinstance(data.language, Completing):
        return CausalTrainer(data, workplace.device)
    return LanguageTrainer(data, workplace.device, CheckpointStore(workplace.models))
