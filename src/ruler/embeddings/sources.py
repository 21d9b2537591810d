"""Tensors, Datasets, encodings and DataLoaders, all read as batches, in the order of their records or by length."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from ruler.core.arithmetic import iterate_blocks
from ruler.core.errors import InputError
from ruler.core.types import IndexArray
from ruler.embeddings.batches import Batch, Beside, check_beside, find_beside_in, find_beside_of
from ruler.embeddings.inputs import (
    IGNORED_TOKEN,
    MARKS_NAME,
    ForwardSignature,
    Key,
    Labels,
    collate,
    collate_labels,
    to_tensor,
)

MOST_TOKENS = 1 << 15
"""Tokens per batch by length, padding included."""

_N_PROBED = 4
_TEXT_COLUMNS = {"input_ids", "attention_mask", "token_type_ids"}


@dataclass(frozen=True, eq=False)
class Source:
    """Data that can be read as batches.

    Args:
        read: Starts at the first record.
        n_records: None where the data does not know its length.
        n_batches: Likewise.
        beside: What is known without reading; the same inside the batches wins.
        is_rereadable: False where reading uses the data up.
        probe: A few records as they are read and with all their padding, where padding is cut off that a model might
            see.
    """

    read: Callable[[], Iterator[Batch]]
    n_records: int | None
    n_batches: int | None
    beside: Beside = field(default_factory=dict)
    is_rereadable: bool = True
    probe: tuple[Batch, Batch] | None = None


def open_source(
    data: Any, signature: ForwardSignature, batch_size: int, *, by_length: bool = False, are_texts: bool = False
) -> Source:
    """Data of any supported kind as a source of batches.

    Args:
        data: See `embed`.
        signature: What forward takes.
        batch_size: Records per batch, at most.
        by_length: Put records with token labels into batches of similar length, the longest first, and of a bounded
            number of tokens.
        are_texts: Likewise with texts without token labels, where a mask or their tokens tell how long they are.
    """
    if isinstance(data, IterableDataset):
        data = DataLoader(data, batch_size=batch_size)
    if isinstance(data, DataLoader):
        return _open_loader(data, signature)
    if hasattr(data, "toarray") and hasattr(data, "nnz"):
        raise InputError(
            f"data must be dense; got a sparse {type(data).__name__} of shape {data.shape}. Give its .toarray()."
        )
    if isinstance(data, Mapping):
        return _open_columns(data, signature, batch_size, by_length=by_length, are_texts=are_texts)
    if _is_array(data) or (isinstance(data, tuple) and data and all(map(_is_array, data))):
        return _open_columns(data, signature, batch_size)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not isinstance(data, str):
        return _open_items(data, signature, batch_size, by_length=by_length, are_texts=are_texts)
    raise InputError(
        "data must be a tensor, an array, a tuple or dict of them, a Dataset with a length, a list of "
        f"records or a DataLoader; got {type(data).__name__}."
    )


def check_repeatable(source: Source, first: Batch) -> None:
    """The first batch, read again, is the same: augmented records would differ from model to model."""
    if not source.is_rereadable:
        return
    again = next(source.read()).columns

    def is_same(a: Tensor, b: Tensor | None) -> bool:
        return b is not None and a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())

    if not all(is_same(values, again.get(key)) for key, values in first.columns.items()):
        raise InputError(
            "data must give the same records each time it is read; the first batch, read twice, differs. "
            "Turn off random augmentation."
        )


def _open_columns(
    data: Any, signature: ForwardSignature, batch_size: int, *, by_length: bool = False, are_texts: bool = False
) -> Source:
    columns, labels, marks = signature.pick(data), signature.pick_label(data), signature.pick_marks(data)
    nested = next((key for key, value in columns.items() if isinstance(value, Mapping)), None)
    if nested is not None:
        keys = ", ".join(map(str, columns[nested]))[:80]
        raise InputError(
            f"data must hold one array per input of the model; got a dict under {nested!r}. "
            f"Records must be flat: give its parts ({keys}) as keys of the data itself."
        )
    if any(getattr(value, "ndim", 1) == 0 for value in columns.values()):
        raise InputError("data must have one row per record; got a single number. Give arrays (n, ...).")
    lengths = {key: len(value) for key, value in columns.items()}
    n_records = next(iter(lengths.values()))
    if any(length != n_records for length in lengths.values()):
        raise InputError(f"data must hold as many records in every part; got lengths {lengths}.")
    if labels is not None and (not hasattr(labels, "__len__") or len(labels) != n_records):
        got = len(labels) if hasattr(labels, "__len__") else type(labels).__name__
        raise InputError(f"labels must be one per record, {n_records} in all; got {got}. Give one for each.")
    beside = check_beside(find_beside_in(data, signature) if isinstance(data, Mapping) else {}, n_records)
    if not all(map(_is_array, columns.values())):  # an encoding without return_tensors: lists of token lists
        records = [{key: value[row] for key, value in columns.items()} for row in range(n_records)]
        if labels is not None:
            records = [{**record, "labels": label} for record, label in zip(records, labels, strict=True)]
        if marks is not None:
            records = [{**record, MARKS_NAME: one} for record, one in zip(records, marks, strict=True)]
        source = _open_items(records, signature, batch_size, by_length=by_length, are_texts=are_texts)
        return replace(source, beside=beside)
    if labels is not None and not isinstance(labels, Tensor) and _is_array(labels):
        labels = np.asarray(labels)

    has_token_labels = by_length and "input_ids" in columns and getattr(labels, "ndim", 0) == 2
    if has_token_labels or (are_texts and np.ndim(labels) < 2 and _are_masked_texts(columns)):
        whole = Batch(
            {key: to_tensor(value) for key, value in columns.items()},
            None if labels is None else _as_labels(labels),
            {},
            _as_marks(marks) if has_token_labels else None,
        )
        return _open_by_length(whole, batch_size, beside)
    blocks = iterate_blocks(n_records, batch_size)

    def read() -> Iterator[Batch]:
        for start, stop in blocks:
            yield Batch(
                {key: to_tensor(value[start:stop]) for key, value in columns.items()},
                None if labels is None else _as_labels(labels[start:stop]),
                {},
                None if marks is None else _as_marks(marks[start:stop]),
            )

    return Source(read, n_records, len(blocks), beside)


def _are_masked_texts(columns: Mapping[Key, Any]) -> bool:
    """Whether these are tokens with a mask, and nothing that has another meaning from place to place."""
    shapes = {tuple(np.shape(value)) for value in columns.values()}
    is_known = {"input_ids", "attention_mask"} <= columns.keys() <= _TEXT_COLUMNS
    return is_known and len(shapes) == 1 and len(shape := shapes.pop()) == 2 and min(shape) > 0


def _open_by_length(whole: Batch, batch_size: int, beside: Beside) -> Source:
    """Columns of padded tokens; of each batch, only what its longest record needs."""
    mask, labels, marks = whole.named.get("attention_mask"), whole.labels, whole.marks
    tokens = whole.named["input_ids"]
    lengths = _last_of(torch.ones_like(tokens) if mask is None else mask)
    of_tokens = whole.has_token_labels
    n_labels = _last_of(labels != IGNORED_TOKEN) if of_tokens and isinstance(labels, Tensor) else np.zeros_like(lengths)
    is_apart = of_tokens and labels is not None and labels.shape != tokens.shape  # a decoder's own tokens
    blocks = _plan_in_order(np.maximum(lengths, n_labels), batch_size)

    def cut(rows: IndexArray) -> Batch:
        index = torch.from_numpy(rows)
        longest = int(lengths[rows].max()) if is_apart else int(np.maximum(lengths, n_labels)[rows].max())
        n_kept = max(1, int(n_labels[rows].max()) if is_apart else longest)
        labelled = None if labels is None else labels[rows] if isinstance(labels, np.ndarray) else labels[index]
        return Batch(
            {
                key: value[index][:, : max(1, longest)] if value.shape[1:2] == tokens.shape[1:2] else value[index]
                for key, value in whole.columns.items()
            },
            labelled[:, :n_kept] if of_tokens and labelled is not None else labelled,
            {},
            None if marks is None else marks[index][:, :n_kept],
            rows,
        )

    some = blocks[-1][:_N_PROBED]
    padded = Batch({key: value[torch.from_numpy(some)] for key, value in whole.columns.items()})
    probe = None if of_tokens else (cut(some), padded)
    return Source(lambda: map(cut, blocks), len(tokens), len(blocks), beside, probe=probe)


def _last_of(marked: Tensor) -> IndexArray:
    """(n,) how many places of each row it takes to hold all that are not 0."""
    places = torch.arange(1, marked.shape[1] + 1)
    found: IndexArray = ((marked != 0).cpu() * places).amax(dim=1).numpy()
    return found


def plan_by_length(lengths: IndexArray, n_tokens: int, n_records: int | None = None) -> list[IndexArray]:
    """Rows of each batch: the longest records first, at most so many records and tokens, or a single record."""
    order = np.argsort(-lengths, kind="stable")
    blocks, start = [], 0
    while start < len(order):
        n_fitting = max(1, n_tokens // max(1, int(lengths[order[start]])))
        blocks.append(order[start : start + min(n_fitting, n_records or n_fitting)])
        start += len(blocks[-1])
    return blocks


def _plan_in_order(lengths: IndexArray, batch_size: int) -> list[IndexArray]:
    return [np.sort(rows) for rows in plan_by_length(lengths, MOST_TOKENS, batch_size)]


def _open_items(
    items: Any, signature: ForwardSignature, batch_size: int, *, by_length: bool = False, are_texts: bool = False
) -> Source:
    n_records = len(items)
    lengths = _lengths_of(items, are_texts=are_texts) if by_length or are_texts else None
    if lengths is None:
        blocks = [np.arange(start, stop) for start, stop in iterate_blocks(n_records, batch_size)]
    else:
        blocks = _plan_in_order(lengths, batch_size)

    def read() -> Iterator[Batch]:
        for rows in blocks:
            records = [items[row] for row in rows.tolist()]
            found = [find_beside_in(record, signature) if isinstance(record, Mapping) else {} for record in records]
            beside = {
                name: np.asarray([one[name] for one in found]) for name in found[0] if all(name in one for one in found)
            }
            yield Batch(
                collate([signature.pick(record) for record in records], signature),
                collate_labels([signature.pick_label(record) for record in records]),
                beside,
                _as_marks(collate_labels([signature.pick_marks(record) for record in records], padding=0)),
                None if lengths is None else rows,
            )

    return Source(read, n_records, len(blocks), check_beside(find_beside_of(items), n_records))


def _lengths_of(items: Any, *, are_texts: bool) -> IndexArray | None:
    """(n,) tokens of each record of a plain list of texts, or of records with token labels; None for other data."""
    if not isinstance(items, list) or not items or not all(isinstance(one, Mapping) for one in items):
        return None
    parts = [(one.get("input_ids"), one.get("labels")) for one in items]
    n_dims = {(np.ndim(tokens), np.ndim(labels)) for tokens, labels in parts}
    if n_dims == {(1, 0)} and are_texts:
        return np.array([len(tokens) for tokens, _ in parts], dtype=np.int64)
    if n_dims != {(1, 1)} or are_texts:
        return None
    return np.array([max(len(tokens), len(labels)) for tokens, labels in parts], dtype=np.int64)


def _open_loader(loader: "DataLoader[Any]", signature: ForwardSignature) -> Source:
    _check_in_order(loader)
    is_iterable = isinstance(loader.dataset, IterableDataset)
    n_records = None if is_iterable or loader.batch_size is None else len(loader.dataset)  # type: ignore[arg-type]

    def read() -> Iterator[Batch]:
        for value in loader:
            columns = {key: to_tensor(part) for key, part in signature.pick(value).items()}
            labels = signature.pick_label(value)
            yield Batch(
                columns,
                None if labels is None else _as_labels(labels),
                find_beside_in(value, signature) if isinstance(value, Mapping) else {},
                _as_marks(signature.pick_marks(value)),
            )

    beside = find_beside_of(loader.dataset)
    return Source(
        read,
        n_records,
        None if is_iterable else len(loader),
        beside if n_records is None else check_beside(beside, n_records),
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


def _as_labels(labels: Any) -> Labels | None:
    """Labels of a batch; None where they are no array of numbers or text."""
    if isinstance(labels, Tensor):
        return labels
    if isinstance(labels, np.ndarray) and labels.dtype.kind not in "UO":
        return to_tensor(labels)
    return collate_labels(list(labels)) if hasattr(labels, "__len__") and not isinstance(labels, str) else None


def _as_marks(marks: Any) -> Tensor | None:
    return None if marks is None or (isinstance(marks, np.ndarray) and marks.dtype.kind == "U") else to_tensor(marks)
