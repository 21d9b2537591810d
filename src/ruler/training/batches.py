"""Records in any common form -> batches on the model's device, in an order that a seed decides."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, default_collate

from ruler.core.errors import InputError
from ruler.training.augment import Augment
from ruler.training.sentences import MaskedSentences

Batch = Any
"""What one step of a source yields: (inputs, labels), or whatever the caller's DataLoader yields."""

_BLOCK_ELEMENTS = 1 << 25


class Batches:
    """Epochs over one source of records; each iteration is one epoch.

    Args:
        source: A pair (X, y) of tensors or arrays, ``MaskedSentences``, a map-style Dataset, or a DataLoader. A
            DataLoader keeps its own batch size and order.
        model: Decides the device, the float type of a pair's X, and whether images lie channels last.
        batch_size: None for one batch with all records in their own order; otherwise every epoch is a fresh
            shuffle.
        seed: Of shuffles, masks and augmentation; the global random streams are not touched.
        name: The argument's name, for errors.
        records_per_epoch: Each epoch is a fresh draw of this many records, without replacement; None takes all.
        augment: Changes the X of a pair whenever it is drawn.

    Example:
        >>> pair = (torch.zeros(5, 1), torch.zeros(5, dtype=torch.long))
        >>> batches = Batches(pair, nn.Linear(1, 2), batch_size=2)
        >>> [len(labels) for inputs, labels in batches], len(batches)
        ([2, 2, 1], 3)
    """

    def __init__(
        self,
        source: Any,
        model: nn.Module,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        name: str = "data",
        records_per_epoch: int | None = None,
        augment: Augment | None = None,
    ) -> None:
        self.device = device_of(model)
        self._generator = torch.Generator().manual_seed(seed)
        self._batch_size, self._n_drawn = batch_size, records_per_epoch
        self._loader: DataLoader[Any] | None = None
        self._records: _Pair | MaskedSentences | None = None
        self._whole: Batch = None
        if isinstance(source, MaskedSentences):
            self._records = source.to(self.device)
        elif isinstance(source, DataLoader | Dataset) and not isinstance(source, TensorDataset):
            self._read_dataset(source, name)
        else:
            tensors = source.tensors if isinstance(source, TensorDataset) else source
            pair = _as_pair(tensors, name, _float_type_of(model), self.device)
            self._records = _Pair(*pair, memory_format_of(model), augment)
            augment = None
        if augment is not None:
            raise InputError(f"augment must be 'none' unless {name} is a pair (X, y); got {type(source).__name__}.")

    def _read_dataset(self, source: Any, name: str) -> None:
        if isinstance(source, DataLoader):
            if self._n_drawn is not None:
                raise InputError(f"records_per_epoch must be None where {name} is a DataLoader; got {self._n_drawn}.")
            self._loader = source
            return
        if not hasattr(source, "__len__") or len(source) == 0:
            raise InputError(f"{name} must be a Dataset with a length above 0; got {source!r}. Give a DataLoader.")
        n_drawn = min(self._n_drawn or len(source), len(source))
        if self._batch_size is None and self._n_drawn is None:
            self._whole = move(default_collate([source[i] for i in range(len(source))]), self.device)
        else:
            sampler = RandomSampler(source, num_samples=n_drawn, generator=self._generator)
            size = self._batch_size or n_drawn
            self._loader = DataLoader(source, batch_size=size, sampler=sampler, generator=self._generator)

    @property
    def is_resident(self) -> bool:
        """Whether all records lie on the model's device, so that drawing a batch waits for nothing."""
        return self._records is not None

    def __len__(self) -> int:
        """Steps an epoch; TypeError for a loader that does not know."""
        if self._loader is not None:
            return len(self._loader)
        if self._records is None or self._batch_size is None:
            return 1
        n_drawn = min(self._n_drawn or len(self._records), len(self._records))
        return -(-n_drawn // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        if self._loader is not None:
            for batch in self._loader:
                yield move(batch, self.device)
        elif self._records is None:
            yield self._whole
        elif self._batch_size is None and self._n_drawn is None:
            yield self._read_whole(self._records)
        else:
            order = torch.randperm(len(self._records), generator=self._generator)[: self._n_drawn]
            yield from self._read_blocks(self._records, order.to(self.device))

    def _read_whole(self, records: "_Pair | MaskedSentences") -> Batch:
        if isinstance(records, _Pair) and records.augment is None:
            return records.tensors  # the same object in every epoch: objectives may keep what they made of it
        return records.draw(torch.arange(len(records), device=self.device), self._generator)

    def _read_blocks(self, records: "_Pair | MaskedSentences", order: torch.Tensor) -> Iterator[Batch]:
        """Many batches are drawn at once and handed out as slices: on a GPU each small draw costs a launch."""
        size = self._batch_size or len(order)
        stride = size
        if self.device.type != "cpu" or not isinstance(records, _Pair) or records.augment is not None:
            stride *= max(1, _BLOCK_ELEMENTS // (size * records.n_elements))
        for start in range(0, len(order), stride):
            rows = order[start : start + stride]
            block = records.draw(rows, self._generator)
            for first in range(0, len(rows), size):
                yield slice_rows(block, first, first + size)


class _Pair:
    """Inputs and labels on a device, drawn by row; images keep their memory format."""

    def __init__(
        self, inputs: torch.Tensor, labels: torch.Tensor, memory_format: torch.memory_format, augment: Augment | None
    ) -> None:
        is_moved = memory_format is torch.channels_last or augment is not None
        self._format = memory_format if inputs.ndim == 4 and is_moved else None
        self.augment = augment
        self.tensors = (self._arrange(inputs), labels)

    def __len__(self) -> int:
        return len(self.tensors[1])

    @property
    def n_elements(self) -> int:
        """Numbers a record."""
        return max(1, self.tensors[0][0].numel())

    def draw(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = self.tensors[0][rows]
        if self.augment is not None:
            inputs = self.augment(inputs, generator)
        return self._arrange(inputs), self.tensors[1][rows]

    def _arrange(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs if self._format is None else inputs.contiguous(memory_format=self._format)


def cycle(batches: Batches) -> Iterator[Batch]:
    """Batches without end: when an epoch is over the next one starts, freshly shuffled."""
    while True:
        yield from batches


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter lies; CPU for a model without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def memory_format_of(model: nn.Module) -> torch.memory_format:
    """How images should lie for this model: channels last if a filter of its convolutions does."""
    filters = (value for value in model.parameters() if value.ndim == 4 and not value.is_contiguous())
    is_last = any(value.is_contiguous(memory_format=torch.channels_last) for value in filters)
    return torch.channels_last if is_last else torch.contiguous_format


def map_tensors(change: Callable[[torch.Tensor], Any], batch: Batch) -> Batch:
    """The same nest of tuples, lists and mappings with every tensor changed."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return {key: map_tensors(change, value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(map_tensors(change, value) for value in batch)
    return batch


def slice_rows(batch: Batch, start: int, stop: int) -> Batch:
    """The same nest with some rows of every tensor."""
    return map_tensors(lambda tensor: tensor[start:stop], batch)


def move(batch: Batch, device: torch.device) -> Batch:
    """The same nest with every tensor on ``device``."""
    return map_tensors(lambda tensor: tensor.to(device), batch)


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
