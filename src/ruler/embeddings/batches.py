"""Some records as a model is fed them, with what stands beside them; and what the batches of one data set gave."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Subset

from ruler.core.errors import InputError
from ruler.core.types import Embeddings, IndexArray
from ruler.embeddings.inputs import IGNORED_TOKEN, MARKS_NAME, ForwardSignature, Key, Labels

_WIDEST_FEATURES = 1000
_MOST_FEATURES = 1 << 26  # numbers; 512 MB as float64
_MOST_PINNED_BYTES = 1 << 28  # of a batch on its way to a GPU; larger ones are copied as they are
_BESIDE = {"ids": ("id", "ids"), "groups": ("groups", "group"), "strata": ("strata",)}

Beside = Mapping[str, npt.NDArray[Any]]
"""What stands beside the records, by field of `Embeddings`: ids, groups, strata."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some records as arguments of forward, with their labels and what else stands beside them.

    Args:
        columns: By position or name.
        labels: Numbers or text.
        beside: Ids, groups and strata.
        marks: (n, t) which tokens belong to a marked span, 0 or 1.
        rows: Which records of the data these are, where they do not follow each other.
    """

    columns: Mapping[Key, Tensor]
    labels: Labels | None = None
    beside: Beside = field(default_factory=dict)
    marks: Tensor | None = None
    rows: IndexArray | None = None

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

    @property
    def tokens(self) -> Tensor | None:
        """What is fed as ``input_ids``, or first where arguments have no names."""
        return self.named.get("input_ids", next(iter(self.positional), None))

    @property
    def has_token_labels(self) -> bool:
        """Whether the labels are token ids, several per record."""
        labels = self.labels
        return isinstance(labels, Tensor) and labels.ndim == 2 and not labels.is_floating_point()

    def find_predicting(self, *, is_shifted: bool, is_apart: bool = False, of_marks: bool = False) -> Tensor:
        """(n, t) at which places a token is predicted that its label counts.

        Args:
            is_shifted: A place predicts the token behind it, as in causal models.
            is_apart: The labels are a decoder's, so that the attention mask is of other tokens.
            of_marks: Only tokens of the marked span.
        """
        assert isinstance(self.labels, Tensor)
        device = next(iter(self.columns.values())).device
        is_counted = self.labels.to(device) != IGNORED_TOKEN
        if of_marks:
            if self.marks is None or self.marks.shape != is_counted.shape:
                found = None if self.marks is None else tuple(self.marks.shape)
                raise InputError(
                    f"data must mark a span in the shape of its labels, {tuple(is_counted.shape)}, under the key "
                    f"{MARKS_NAME!r}; got {found}. Give it, or choose another pooling."
                )
            is_counted = is_counted & (self.marks.to(device) != 0)
        mask = None if is_apart else self.named.get("attention_mask")
        has_mask = mask is not None and mask.shape == is_counted.shape
        is_real = mask != 0 if mask is not None and has_mask else torch.ones_like(is_counted)
        is_counted = is_counted & is_real
        if is_shifted:
            return functional.pad(is_counted[:, 1:] & is_real[:, :-1], (0, 1))
        return is_counted

    @property
    def features(self) -> npt.NDArray[Any] | None:
        """The records themselves, where they are plain rows of real numbers (n, d), d at most 1000."""
        rows = next(iter(self.columns.values()))
        is_plain = len(self.columns) == 1 and rows.is_floating_point() and rows.ndim == 2
        if not is_plain or rows.shape[1] > _WIDEST_FEATURES:
            return None
        return rows.detach().to("cpu", rows.dtype if rows.dtype == torch.float64 else torch.float32).numpy()

    def placed(self, device: torch.device, float_dtype: torch.dtype | None) -> "Batch":
        """The same batch on a device, with its real numbers in the model's precision; a GPU need not be waited for."""

        def place(value: Tensor) -> Tensor:
            dtype = float_dtype if value.is_floating_point() else None
            # a copy of a view would take pinned memory for all that lies between its rows
            is_small = value.is_contiguous() and value.nbytes <= _MOST_PINNED_BYTES
            if device.type == "cuda" and value.device.type == "cpu" and is_small:
                return value.pin_memory().to(device, dtype, non_blocking=True)
            return value.to(device, dtype)

        return replace(self, columns={key: place(value) for key, value in self.columns.items()})


def find_beside_in(record: Mapping[str, Any], signature: ForwardSignature) -> dict[str, npt.NDArray[Any]]:
    """What a record, or a batch of records, carries beside its inputs."""
    fed = (*signature.required, *signature.optional)
    found = {}
    for name, keys in _BESIDE.items():
        key = next((key for key in keys if key in record and (name == "ids" or key not in fed)), None)
        if key is not None:
            found[name] = _as_array(record[key])
    return found


def find_beside_of(dataset: Any) -> dict[str, npt.NDArray[Any]]:
    """What a Dataset carries as the attributes ``ids``, ``groups`` and ``strata``."""
    if isinstance(dataset, Subset):
        rows = np.asarray(dataset.indices)
        return {"ids": rows} | {name: whole[rows] for name, whole in find_beside_of(dataset.dataset).items()}
    found = {}
    for name in _BESIDE:
        value: Any = getattr(dataset, name, None)
        # an attribute "groups" may be anything, such as a list of the groups that there are
        is_meant = name == "ids" or (hasattr(value, "__len__") and len(value) == len(dataset))
        if value is not None and not callable(value) and is_meant:
            found[name] = _as_array(value)
    return found


def _as_array(value: Any) -> npt.NDArray[Any]:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)


def check_beside(beside: dict[str, npt.NDArray[Any]], n_records: int) -> dict[str, npt.NDArray[Any]]:
    """What stands beside the records, provided that it is one value for each."""
    for name, values in beside.items():
        if values.shape != (n_records,):
            raise InputError(f"{name} must be one per record, shape ({n_records},); got shape {values.shape}.")
    return beside


class GatheredRows:
    """Vectors by layer, with the labels, features and ids of their records, of one batch after the other.

    Args:
        layers: Names.
        n_records: Of the whole data, where known.
        n_most: Records that are wanted; None for all.
    """

    def __init__(self, layers: Iterable[str], n_records: int | None, n_most: int | None) -> None:
        self._n_most = n_most
        self._stacks = {name: _Stack(n_records, n_most) for name in layers}
        self._beside: list[Mapping[str, npt.NDArray[Any]]] = []
        self._labels: list[Labels | None] = []
        self._visited: list[IndexArray | None] = []
        self._features: list[npt.NDArray[Any]] | None = []

    def add(self, batch: Batch, vectors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add the vectors of one batch, by layer."""
        for name, rows in vectors.items():
            self._stacks[name].add(rows, batch.rows)
        self._beside.append(batch.beside)
        self._labels.append(batch.labels)
        self._visited.append(batch.rows)
        if self._features is not None:
            block = batch.features
            if block is None or (len(self._features) + 1) * block.size > _MOST_FEATURES:
                self._features = None
            else:
                self._features.append(block)

    @property
    def n_rows(self) -> int:
        """How many records so far."""
        return next(iter(self._stacks.values())).n_rows

    def finish(self, beside: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Embeddings], IndexArray, IndexArray]:
        """Embeddings by layer; the records they are of, ascending; and the place of each in the order of visits."""
        values = {name: stack.finish() for name, stack in self._stacks.items()}
        n_rows = len(next(iter(values.values())))
        # batches of similar length visit records in another order than that of the data
        visits = [rows for rows in self._visited if rows is not None]
        order = np.argsort(np.concatenate(visits), kind="stable") if visits else np.arange(n_rows)
        rows = np.concatenate(visits)[order] if visits else order
        if visits and self._n_most is not None:
            values = {name: one[order] for name, one in values.items()}
        for one in values.values():
            n_bad = sum(int((~np.isfinite(block).all(axis=1)).sum()) for block in np.array_split(one, 64))
            if n_bad:
                raise InputError(
                    f"embeddings must be finite; got NaN or inf in {n_bad} of {len(one)} rows. "
                    "Check these records' inputs or mend the model."
                )
        known: dict[str, Any] = {name: part[rows] for name, part in beside.items()}
        for name in self._beside[0]:
            if all(name in one for one in self._beside):
                known[name] = np.concatenate([one[name] for one in self._beside])[order]
        features = None if self._features is None else np.concatenate(self._features)[:n_rows].astype(np.float64)
        known["features"] = features if features is not None and np.isfinite(features).all() else None
        labels = _join_labels(self._labels, n_rows)
        known["labels"] = None if labels is None else labels[order]
        return {name: Embeddings(one, layer=name, **known) for name, one in values.items()}, rows, order


class _Stack:
    """Blocks of rows one under the other, in one copy in memory where their number is known."""

    def __init__(self, n_records: int | None, n_most: int | None) -> None:
        self._n_records, self._n_most = n_records, n_most
        self._values: npt.NDArray[Any] | None = None
        self._blocks: list[npt.NDArray[Any]] = []
        self._takes_whole = False
        self.n_rows = 0

    def add(self, block: npt.NDArray[Any], rows: IndexArray | None) -> None:
        if self._n_records is None or self._n_most is not None:
            self._blocks.append(block)
        else:
            if self._values is None:
                self._values = np.empty((self._n_records, block.shape[1]), block.dtype)
            if self.n_rows + len(block) <= self._n_records:
                self._values[slice(self.n_rows, self.n_rows + len(block)) if rows is None else rows] = block
        self._takes_whole = rows is not None
        self.n_rows += len(block)

    def finish(self) -> npt.NDArray[Any]:
        if self._values is None:
            return np.concatenate(self._blocks)[: None if self._takes_whole else self._n_most]
        if self.n_rows != self._n_records:
            raise InputError(
                f"data must give every record once; its length is {self._n_records}, it gave {self.n_rows}. "
                "Correct the Dataset or pass a plain DataLoader over it."
            )
        return self._values


def _join_labels(blocks: Sequence[Labels | None], n_rows: int) -> npt.NDArray[Any] | None:
    """Labels (n,) of all records; None where a record has none, or several."""
    flat = []
    for block in blocks:
        if block is None:
            return None
        if not isinstance(block, np.ndarray):
            block = (block.double() if block.is_floating_point() else block).detach().cpu().numpy()
        flat.append(block[:, 0] if block.ndim == 2 and block.shape[1] == 1 else block)
    if any(block.ndim != 1 for block in flat) or len({block.dtype.kind == "U" for block in flat}) > 1:
        return None
    joined = np.concatenate(flat)[:n_rows]
    return joined if len(joined) == n_rows else None
