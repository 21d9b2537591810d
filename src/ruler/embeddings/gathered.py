"""What the batches of one data set gave, joined in the order of its records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import Embeddings, IndexArray
from ruler.embeddings.batches import Batch
from ruler.embeddings.inputs import Labels

_MOST_FEATURES = 1 << 26  # numbers; 512 MB as float64


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
    def are_enough(self) -> bool:
        """Whether no more records are wanted."""
        return self._n_most is not None and next(iter(self._stacks.values())).n_rows >= self._n_most

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
            _check_finite(one)
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
                "Mend the Dataset or pass a plain DataLoader over it."
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


def _check_finite(values: npt.NDArray[Any]) -> None:
    n_bad = sum(int((~np.isfinite(block).all(axis=1)).sum()) for block in np.array_split(values, 64))
    if n_bad:
        raise InputError(
            f"embeddings must be finite; got NaN or inf in {n_bad} of {len(values)} rows. "
            "Check these records' inputs or mend the model."
        )
