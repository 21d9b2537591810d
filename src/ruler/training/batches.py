"""Records in any common form -> batches on the model's device, in an order that a seed decides."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, default_collate

from ruler.core.errors import InputError
from ruler.training.sentences import Completions, TokenSource
from ruler.training.settings import AUGMENTATIONS

Array = npt.NDArray[Any] | torch.Tensor

Source = tuple[Array, Array] | TokenSource | Dataset[Any] | DataLoader[Any]
"""Records: a pair (X, y), sentences to mask, completions of prompts, a map-style Dataset, or a DataLoader."""

Batch = Any
"""What one step of a source yields: (inputs, labels), or whatever the caller's DataLoader yields."""

_BLOCK_ELEMENTS = 1 << 25
_MARGIN = 4  # pixels that an image is moved by at most: the usual padding for images of 32 x 32


class Batches:
    """Epochs over one source of records; each iteration is one epoch.

    Args:
        source: A DataLoader keeps its own batch size and order.
        model: Decides the device, the float type of a pair's X, and whether images lie channels last.
        batch_size: None for one batch with all records in their own order; otherwise every epoch is a fresh
            shuffle.
        seed: Of shuffles, masks and augmentation; the global random streams are not touched.
        name: The argument's name, for errors.
        records_per_epoch: Each epoch is a fresh draw of this many records, without replacement; None takes all.
        augment: ``none``; ``crop`` or ``flip_crop`` change the images of a pair whenever they are drawn.

    Example:
        >>> pair = (torch.zeros(5, 1), torch.zeros(5, dtype=torch.long))
        >>> batches = Batches(pair, nn.Linear(1, 2), batch_size=2)
        >>> [len(labels) for inputs, labels in batches], len(batches)
        ([2, 2, 1], 3)
    """

    def __init__(
        self,
        source: Source,
        model: nn.Module,
        *,
        batch_size: int | None = None,
        seed: int = 0,
        name: str = "data",
        records_per_epoch: int | None = None,
        augment: str = "none",
    ) -> None:
        self.device = device_of(model)
        self._generator = torch.Generator().manual_seed(seed)
        self._batch_size, self._n_drawn = batch_size, records_per_epoch
        self._loader: DataLoader[Any] | None = None
        self._records: _Pair | TokenSource | None = None
        self._whole: Batch = None
        is_dataset = isinstance(source, DataLoader | Dataset) and not isinstance(source, TensorDataset)
        if augment != "none" and (is_dataset or isinstance(source, TokenSource)):
            raise InputError(f"augment must be 'none' unless {name} is a pair (X, y); got {type(source).__name__}.")
        if isinstance(source, TokenSource):
            self._records = source.to(self.device)
        elif is_dataset:
            self._read_dataset(source, name)
        else:
            tensors = source.tensors if isinstance(source, TensorDataset) else source
            self._records = _Pair(*_as_pair(tensors, name, model), memory_format_of(model), AUGMENTATIONS[augment])

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
            self._whole = _move(default_collate([source[i] for i in range(len(source))]), self.device)
        else:
            sampler = RandomSampler(source, num_samples=n_drawn, generator=self._generator)
            size = self._batch_size or n_drawn
            self._loader = DataLoader(source, batch_size=size, sampler=sampler, generator=self._generator)

    @property
    def is_resident(self) -> bool:
        """Whether all records lie on the model's device, so that drawing a batch waits for nothing."""
        return self._records is not None

    def __len__(self) -> int:
        """Steps per epoch; TypeError for a loader that does not know."""
        if self._loader is not None:
            return len(self._loader)
        if self._records is None or self._batch_size is None:
            return 1
        n_drawn = min(self._n_drawn or len(self._records), len(self._records))
        return -(-n_drawn // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        records = self._records
        if self._loader is not None:
            for batch in self._loader:
                yield _move(batch, self.device)
        elif records is None:
            yield self._whole
        elif self._batch_size is not None or self._n_drawn is not None:
            order = torch.randperm(len(records), generator=self._generator)[: self._n_drawn]
            if isinstance(records, Completions):
                yield from records.split(order, self._batch_size or len(order), self._generator)
            else:
                yield from self._read_blocks(records, order.to(self.device))
        elif isinstance(records, _Pair) and records.is_mirrored is None:
            yield records.tensors  # the same object in every epoch: objectives may keep what they made of it
        else:
            yield records.draw(torch.arange(len(records), device=self.device), self._generator)

    def _read_blocks(self, records: "_Pair | TokenSource", order: torch.Tensor) -> Iterator[Batch]:
        """Draw many batches at once and hand them out as slices: on a GPU each small draw costs a launch."""
        size = self._batch_size or len(order)
        stride = size
        if self.device.type != "cpu" or not isinstance(records, _Pair) or records.is_mirrored is not None:
            stride *= max(1, _BLOCK_ELEMENTS // (size * records.n_elements))
        for start in range(0, len(order), stride):
            rows = order[start : start + stride]
            block = records.draw(rows, self._generator)
            for first in range(0, len(rows), size):
                yield slice_rows(block, first, first + size)


class _Pair:
    """Inputs and labels on a device, drawn by row; images keep their memory format."""

    def __init__(
        self, inputs: torch.Tensor, labels: torch.Tensor, memory_format: torch.memory_format, is_mirrored: bool | None
    ) -> None:
        is_moved = memory_format is torch.channels_last or is_mirrored is not None
        self._format = memory_format if inputs.ndim == 4 and is_moved else None
        self.is_mirrored = is_mirrored  # None: the images are not changed at all
        self.tensors = (self._arrange(inputs), labels)

    def __len__(self) -> int:
        return len(self.tensors[1])

    @property
    def n_elements(self) -> int:
        """Numbers per record."""
        return max(1, self.tensors[0][0].numel())

    def draw(self, rows: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = self.tensors[0][rows]
        if self.is_mirrored is not None:
            inputs = shift_images(inputs, generator, is_mirrored=self.is_mirrored)
        return self._arrange(inputs), self.tensors[1][rows]

    def _arrange(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs if self._format is None else inputs.contiguous(memory_format=self._format)


def shift_images(images: torch.Tensor, generator: torch.Generator, *, is_mirrored: bool = True) -> torch.Tensor:
    """Each image moved by up to 4 pixels in both directions, zeros coming in, and every second one mirrored.

    Args:
        images: (n, c, h, w), normalised, so that zero is the mean colour.
        generator: On the CPU, so that a seed means the same changes on every device.
        is_mirrored: False leaves left and right as they are (digits, letters).

    Raises:
        InputError: Not a stack of images.

    Example:
        >>> images = torch.ones(2, 3, 8, 8)
        >>> shift_images(images, torch.Generator().manual_seed(0)).shape
        torch.Size([2, 3, 8, 8])
    """
    if images.ndim != 4:
        raise InputError(
            f"augment must be 'none' for records that are not images (n, c, h, w); got shape {tuple(images.shape)}."
        )
    n, height, width = len(images), images.shape[2], images.shape[3]
    offsets = torch.randint(0, 2 * _MARGIN + 1, (2, n, 1), generator=generator)
    is_flipped = torch.rand(n, 1, generator=generator) < 0.5 * is_mirrored
    across = torch.arange(width).expand(n, width)
    columns = offsets[1] + torch.where(is_flipped, width - 1 - across, across)  # (n, w)
    rows = offsets[0] + torch.arange(height)  # (n, h)
    columns, rows = columns.to(images.device), rows.to(images.device)
    padded = functional.pad(images, (_MARGIN,) * 4)
    places = torch.arange(n, device=images.device)[:, None, None]
    return padded[places, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


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


def _move(batch: Batch, device: torch.device) -> Batch:
    return map_tensors(lambda tensor: tensor.to(device), batch)


def _as_pair(source: Any, name: str, model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs in the model's float type and labels, on its device."""
    if not isinstance(source, tuple | list) or len(source) != 2:
        raise InputError(
            f"{name} must be a pair (X, y), a Dataset or a DataLoader; got {type(source).__name__}. "
            "Give inputs and labels together."
        )
    inputs, labels = (part if isinstance(part, torch.Tensor) else torch.from_numpy(np.array(part)) for part in source)
    if inputs.ndim == 0 or labels.ndim == 0:
        raise InputError(f"{name} must hold arrays with one row per record; got a single value.")
    if len(inputs) != len(labels) or len(labels) == 0:
        raise InputError(
            f"{name} must hold one label per record and at least one record; "
            f"got {len(inputs)} inputs and {len(labels)} labels."
        )
    if inputs.is_floating_point():
        types = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
        inputs = inputs.to(next(types, torch.get_default_dtype()))
    if not labels.is_floating_point():
        labels = labels.long()
    return inputs.to(device_of(model)), labels.to(device_of(model))
