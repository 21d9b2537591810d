"""Training, unlearning and reading the models of a diagnostic cell, for classifiers and for language models."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ruler.core.precision import fixed_algorithms, full_precision, repeatable_only
from ruler.core.types import IndexArray
from ruler.experiment.diagnostic.material import Material
from ruler.experiment.diagnostic.recipes import choose_diagnostic_unlearning, choose_training
from ruler.experiment.grid import Cell
from ruler.models import MODELS
from ruler.training.classifier import train_classifier
from ruler.unlearning import unlearn

READ_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model holds of every record, in the material's order.

    Args:
        rows: (n, p) representations, on the lab's device.
        losses: (n,) of each record.
        hits: (n,) share of right answers of each record, 0 or 1 for a classifier.
    """

    rows: torch.Tensor
    losses: npt.NDArray[np.float64]
    hits: npt.NDArray[np.float64]


class Lab(Protocol):
    """What a bench asks for, whatever the models are made of."""

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """A model trained on these records."""
        ...

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """The model after the cell's method."""
        ...

    def read(self, model: nn.Module) -> Reading:
        """Its representations and answers."""
        ...


def repeat_exactly(device: str, *, has_pooling: bool = False) -> AbstractContextManager[None]:
    """A context in which training on a GPU gives the same weights every time; on a CPU it does anyway."""
    if device == "cpu":
        return nullcontext()
    return fixed_algorithms(torch) if has_pooling else repeatable_only(torch)


class ClassifierLab:
    """Tables, images and faces.

    Args:
        material: Of the cells' dataset.
        device: Where models and records lie.
    """

    def __init__(self, material: Material, device: str) -> None:
        assert material.labels is not None
        self._material, self._device = material, device
        distinct, place = material.distinct
        self._distinct = self._lay(torch.from_numpy(distinct))
        self._place = torch.from_numpy(place).to(device)
        self._labels = torch.from_numpy(np.asarray(material.labels)).to(device)
        self._is_of_images = distinct.ndim == 4

    def _lay(self, inputs: torch.Tensor) -> torch.Tensor:
        """Onto the device; images with their channels last, as tensor cores want them."""
        if inputs.ndim == 4 and self._device != "cpu":
            return inputs.to(self._device, memory_format=torch.channels_last)
        return inputs.to(self._device)

    def _build(self, architecture: str) -> nn.Module:
        shape = self._material.inputs.shape[1:]
        model: nn.Module = MODELS[architecture](shape, self._material.n_classes)
        if len(shape) == 3 and self._device != "cpu":
            return model.to(self._device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
        return model.to(self._device)

    def _pair(self, rows: IndexArray) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.from_numpy(rows).to(self._device)
        return self._distinct[self._place[index]], self._labels[index]

    def train(self, cell: Cell, rows: IndexArray, seed: int) -> nn.Module:
        """A classifier of the cell's architecture."""
        settings = choose_training(cell)
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            build = partial(self._build, cell.architecture)
            return train_classifier(build, self._pair(rows), seed=seed, settings=settings)

    def unlearn(self, cell: Cell, model: nn.Module, forget: IndexArray, retain: IndexArray) -> nn.Module:
        """The classifier after the cell's method."""
        settings = choose_diagnostic_unlearning(cell)
        with repeat_exactly(self._device, has_pooling=self._is_of_images):
            return unlearn(cell.method, model, forget=self._pair(forget), retain=self._pair(retain), settings=settings)

    @torch.inference_mode()
    @full_precision(torch)
    @fixed_algorithms(torch)
    def read(self, model: nn.Module) -> Reading:
        """Representations and logits of every record in float32."""
        model.eval()
        blocks = [_read_block(model, block) for block in torch.split(self._distinct, READ_BLOCK)]
        rows, logits = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        answers = logits[self._place].double()
        losses = nn.functional.cross_entropy(answers, self._labels, reduction="none")
        hits = (answers.argmax(1) == self._labels).double()
        return Reading(rows[self._place], losses.cpu().numpy(), hits.cpu().numpy())


def _read_block(model: nn.Module, block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Representations and logits in one pass: the representation is what enters the head, the last Linear made."""
    caught: list[torch.Tensor] = []
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    handle = head.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
    try:
        logits = model(block)
    finally:
        handle.remove()
    return caught[0], logits
