"""Tensors, Datasets, encodings and DataLoaders, all read as batches in the order of their records."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, Subset

from ruler.core.arithmetic import iterate_blocks
from ruler.core.errors import InputError
from ruler.embeddings.inputs import Inlet, Key, collate, to_tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Some records as arguments of forward, with their ids if the records carry them."""

    columns: Mapping[Key, Tensor]
    ids: npt.NDArray[Any] | None = None

    @property
    def n_rows(self) -> int:
        """How many records."""
        return len(next(iter(self.columns.values())))

    @property
    def positional(self) -> list[Tensor]:
        """The arguments by position."""
        return [value for key, value in self.columns.items() if isinstance(key, int)]

    @property
    def named(self) -> dict[str, Tensor]:
        """The arguments by name."""
        return {key: value for key, value in self.columns.items() if isinstance(key, str)}

    def placed(self, device: torch.device, float_dtype: torch.dtype | None) -> "Batch":
        """The same batch on a device, with its real numbers in the model's precision."""
        return replace(
            self,
            columns={
                key: value.to(device, float_dtype if value.is_floating_point() else None)
                for key, value in self.columns.items()
            },
        )


@dataclass(frozen=True, eq=False)
class Source:
    """Data that can be read as batches.

    Args:
        read: Starts at the first record.
        n_records: None where the data does not know its length.
        n_batches: Likewise.
        ids: Ids known without reading; ids inside the batches win.
        is_rereadable: False where reading uses the data up.
    """

    read: Callable[[], Iterator[Batch]]
    n_records: int | None
    n_batches: int | None
    ids: npt.NDArray[Any] | None = None
    is_rereadable: bool = True


def open_source(data: Any, inlet: Inlet, batch_size: int) -> Source:
    """Data of any supported kind as a source of batches.

    Raises:
        InputError: Data of another kind, a loader that shuffles or drops records, parts of unequal length.
    """
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=batch_size)
    if isinstance(data, DataLoader):
        return _open_loader(data, inlet)
    if isinstance(data, Mapping):
        return _open_columns(inlet.pick(data), _ids_in(data), inlet, batch_size)
    if _is_array(data) or (isinstance(data, tuple) and data and all(map(_is_array, data))):
        return _open_columns(inlet.pick(data), None, inlet, batch_size)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, str):
        return _open_items(data, inlet, batch_size)
    raise InputError(
        "data must be a tensor, an array, a tuple or dict of them, a Dataset with a length, a list of "
        f"records or a DataLoader; got {type(data).__name__}."
    )


def check_repeatable(source: Source, first: Batch) -> None:
    """The first batch, read again, is the same: augmented records would differ from model to model.

    Raises:
        InputError: It is not.
    """
    if not source.is_rereadable:
        return
    again = next(source.read())
    if not all(_are_equal(first.columns[key], again.columns.get(key)) for key in first.columns):
        raise InputError(
            "data must give the same records each time it is read; the first batch, read twice, differs. "
            "Turn off random augmentation."
        )


def _are_equal(a: Tensor, b: Tensor | None) -> bool:
    return b is not None and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _open_columns(columns: dict[Key, Any], ids: npt.NDArray[Any] | None, inlet: Inlet, batch_size: int) -> Source:
    if any(getattr(value, "ndim", 1) == 0 for value in columns.values()):
        raise InputError("data must have one row a record; got a single number. Give arrays (n, ...).")
    lengths = {key: len(value) for key, value in columns.items()}
    n_records = next(iter(lengths.values()))
    if any(length != n_records for length in lengths.values()):
        raise InputError(f"data must hold as many records in every part; got lengths {lengths}.")
    if not all(map(_is_array, columns.values())):  # an encoding without return_tensors: lists of token lists
        records = [{key: value[row] for key, value in columns.items()} for row in range(n_records)]
        return replace(_open_items(records, inlet, batch_size), ids=_checked_ids(ids, n_records))

    blocks = iterate_blocks(n_records, batch_size)

    def read() -> Iterator[Batch]:
        for start, stop in blocks:
            yield Batch({key: to_tensor(value[start:stop]) for key, value in columns.items()})

    return Source(read, n_records, len(blocks), _checked_ids(ids, n_records))


def _open_items(items: Any, inlet: Inlet, batch_size: int) -> Source:
    n_records = len(items)
    blocks = iterate_blocks(n_records, batch_size)

    def read() -> Iterator[Batch]:
        for start, stop in blocks:
            records = [items[row] for row in range(start, stop)]
            ids = [record["id"] for record in records if isinstance(record, Mapping) and "id" in record]
            yield Batch(
                collate([inlet.pick(record) for record in records], inlet),
                _as_ids(ids) if len(ids) == len(records) else None,
            )

    return Source(read, n_records, len(blocks), _checked_ids(_ids_of(items), n_records))


def _open_loader(loader: "DataLoader[Any]", inlet: Inlet) -> Source:
    _check_in_order(loader)
    is_iterable = isinstance(loader.dataset, IterableDataset)
    n_records = None if is_iterable or loader.batch_size is None else len(loader.dataset)  # type: ignore[arg-type]

    def read() -> Iterator[Batch]:
        for value in loader:
            columns = {key: to_tensor(part) for key, part in inlet.pick(value).items()}
            yield Batch(columns, _ids_in(value) if isinstance(value, Mapping) else None)

    ids = _ids_of(loader.dataset)
    return Source(
        read,
        n_records,
        None if is_iterable else len(loader),
        ids if n_records is None else _checked_ids(ids, n_records),
        is_rereadable=not is_iterable,
    )


def _check_in_order(loader: "DataLoader[Any]") -> None:
    if isinstance(loader.dataset, IterableDataset):
        drops_rows = loader.drop_last
    else:
        sampler: Any = loader.batch_sampler or loader.sampler
        if type(sampler) is BatchSampler:  # one of its own making may group records in any order
            sampler = sampler.sampler
        if not isinstance(sampler, SequentialSampler):
            raise InputError(
                "the DataLoader must go through its data in order, or rows would not line up between models; "
                f"got a {type(sampler).__name__}. Make it with shuffle=False and no sampler."
            )
        size = getattr(loader.batch_sampler, "batch_size", None) or 1
        is_dropping = getattr(loader.batch_sampler, "drop_last", loader.drop_last)
        drops_rows = is_dropping and len(loader.dataset) % size != 0  # type: ignore[arg-type]
    if drops_rows:
        raise InputError(
            "the DataLoader must give every record; got drop_last=True, which loses the last ones. "
            "Make it with drop_last=False."
        )


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _ids_in(record: Mapping[str, Any]) -> npt.NDArray[Any] | None:
    found = record.get("id", record.get("ids"))
    return None if found is None else _as_ids(found)


def _ids_of(dataset: Any) -> npt.NDArray[Any] | None:
    if isinstance(dataset, Subset):
        rows = np.asarray(dataset.indices)
        of_whole = _ids_of(dataset.dataset)
        return rows if of_whole is None else of_whole[rows]
    found = getattr(dataset, "ids", None)
    return None if found is None or callable(found) else _as_ids(found)


def _as_ids(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


def _checked_ids(ids: npt.NDArray[Any] | None, n_records: int) -> npt.NDArray[Any] | None:
    if ids is not None and ids.shape != (n_records,):
        raise InputError(f"ids must be one name a record, shape ({n_records},); got shape {ids.shape}.")
    return ids
