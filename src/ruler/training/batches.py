"""Records in any common form -> batches on the model's device, in an order that a seed decides."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from ruler.core.errors import InputError

Batch = Any
"""What one step of a source yields: (inputs, labels), or whatever the caller's DataLoader yields."""


class Batches:
    """Epochs over one source of records; each iteration is one epoch.

    Args:
        source: A pair (X, y) of tensors or arrays, a map-style Dataset, or a DataLoader. A DataLoader keeps
            its own batch size and order.
        model: Decides the device, and the float type of a pair's X.
        batch_size: None for one batch with all records in their own order; otherwise every epoch is a fresh
            shuffle.
        seed: Of the shuffles alone; the global random streams are not touched.
        name: The argument's name, for errors.

    Example:
        >>> pair = (torch.zeros(5, 1), torch.zeros(5, dtype=torch.long))
        >>> [len(labels) for inputs, labels in Batches(pair, nn.Linear(1, 2), batch_size=2)]
        [2, 2, 1]
    """

    def __init__(
        self,
        source: Any,
        model: nn.Module,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        name: str = "data",
    ) -> None:
        self.device = device_of(model)
        self._generator = torch.Generator().manual_seed(seed)
        self._batch_size = batch_size
        self._loader: DataLoader[Any] | None = None
        self._tensors: tuple[torch.Tensor, torch.Tensor] | None = None
        self._whole: Batch = None
        if isinstance(source, DataLoader):
            self._loader = source
        elif isinstance(source, Dataset) and not isinstance(source, TensorDataset):
            self._read_dataset(source, name)
        else:
            tensors = source.tensors if isinstance(source, TensorDataset) else source
            self._tensors = _as_pair(tensors, name, _float_type_of(model), self.device)

    def _read_dataset(self, dataset: Any, name: str) -> None:
        if not hasattr(dataset, "__len__") or len(dataset) == 0:
            raise InputError(f"{name} must be a Dataset with a length above 0; got {dataset!r}. Give a DataLoader.")
        if self._batch_size is None:
            self._whole = move(default_collate([dataset[i] for i in range(len(dataset))]), self.device)
        else:
            self._loader = DataLoader(dataset, batch_size=self._batch_size, shuffle=True, generator=self._generator)

    def __iter__(self) -> Iterator[Batch]:
        if self._loader is not None:
            for batch in self._loader:
                yield move(batch, self.device)
        elif self._whole is not None:
            yield self._whole
        elif self._tensors is not None and self._batch_size is None:
            yield self._tensors
        elif self._tensors is not None and self._batch_size is not None:
            inputs, labels = self._tensors
            order = torch.randperm(len(labels), generator=self._generator).to(self.device)
            for start in range(0, len(order), self._batch_size):
                rows = order[start : start + self._batch_size]
                yield inputs[rows], labels[rows]


def cycle(batches: Batches) -> Iterator[Batch]:
    """Batches without end: when an epoch is over the next one starts, freshly shuffled."""
    while True:
        yield from batches


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter lies; CPU for a model without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def move(batch: Batch, device: torch.device) -> Batch:
    """The same nest of tuples, lists and mappings with every tensor on ``device``."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: move(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(move(value, device) for value in batch)
    return batch


def _float_type_of(model: nn.Module) -> torch.dtype:
    types = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return next(types, torch.get_default_dtype())


def _as_pair(
    source: Any, name: str, float_type: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    if not isinstance(source, tuple | list) or len(source) != 2:
        raise InputError(
            f"{name} must be a pair (X, y), a Dataset or a DataLoader; got {type(source).__name__}. "
            "Give inputs and labels together."
        )
    inputs, labels = (_as_tensor(part, name) for part in source)
    if len(inputs) != len(labels) or len(labels) == 0:
        raise InputError(
            f"{name} must hold one label a record and at least one record; "
            f"got {len(inputs)} inputs and {len(labels)} labels."
        )
    if inputs.is_floating_point():
        inputs = inputs.to(float_type)
    if not labels.is_floating_point():
        labels = labels.long()
    return inputs.to(device), labels.to(device)


def _as_tensor(value: Any, name: str) -> torch.Tensor:
    tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
    if tensor.ndim == 0:
        raise InputError(f"{name} must hold arrays with one row a record; got a single value.")
    return tensor
