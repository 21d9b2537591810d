"""Frozen values that travel between rooms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]


class SupportsDLPack(Protocol):
    """An array of another library, perhaps on an accelerator."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...


RowsLike = npt.ArrayLike | SupportsDLPack
"""Rows of records as users give them: arrays, tensors on any device, `Embeddings`, nested lists."""


class MapDataset(Protocol):
    """A dataset that is read by position, such as torch's."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


ModelInput = RowsLike | Mapping[str, RowsLike] | MapDataset | Iterable[object]
"""Records as a model takes them: rows, a tuple (inputs, labels), a dict of columns, a dataset or a loader."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Representations of records in one model: row i belongs to record ``ids[i]``.

    Args:
        values: (n, p) array; may be memory-mapped, or `StackedRows` of a folder of shards.
        ids: (n,) names of the records; 0..n-1 when not given.
        layer: Where in the model the rows were read, if known.
        columns: (p,) names of the columns of values, as a table has them; kept as a tuple of text.
        labels: (n,) what the records are labelled, or None.
        losses: (n,) the model's loss on each record, finite, or None.
        groups: (n,) whose record it is (a person, a document), or None.
        strata: (n,) what forget and held-out records are to be matched on (an age band, a source, a month), or None.
        features: (n, d) numbers that describe the records apart from any model, such as a table's inputs, or None.

    Example:
        >>> Embeddings(np.eye(2), ids=["ann", "bob"]).ids.tolist()
        ['ann', 'bob']
    """

    values: npt.NDArray[Any]
    ids: Any = None
    layer: str | None = None
    columns: Any = None
    labels: Any = None
    losses: Any = None
    groups: Any = None
    strata: Any = None
    features: Any = None

    def __post_init__(self) -> None:
        ids = np.arange(len(self.values)) if self.ids is None else np.asarray(self.ids)
        if ids.shape != (len(self.values),):
            raise InputError(
                f"ids must be one name per row, shape ({len(self.values)},); got shape {ids.shape}. "
                "Give as many ids as there are embedding rows."
            )
        object.__setattr__(self, "ids", ids)
        for name in ("labels", "losses", "groups", "strata", "features"):
            self._check_beside(name)
        if self.columns is not None:
            columns = tuple(str(name) for name in self.columns)
            if self.values.shape[1:] != (len(columns),):
                raise InputError(
                    f"columns must be one name per column of values, whose shape is {self.values.shape}; "
                    f"got {len(columns)}. Give as many names as there are columns."
                )
            object.__setattr__(self, "columns", columns)

    def _check_beside(self, name: str) -> None:
        """One entry per record of what stands beside the rows; losses and features as finite numbers."""
        if getattr(self, name) is None:
            return
        array = np.asarray(getattr(self, name))
        n_dimensions = 2 if name == "features" else 1
        if array.ndim != n_dimensions or len(array) != len(self.values):
            raise InputError(
                f"{name} must be one per record, {len(self.values)} in all; got shape {array.shape}. Give one for each."
            )
        if name in ("losses", "features"):
            try:
                array = array.astype(np.float64, copy=False)
            except (TypeError, ValueError) as error:
                raise InputError(f"{name} must be numbers; got {array.dtype}. Omit {name} if unknown.") from error
            n_bad = int((~np.isfinite(array)).sum())
            if n_bad:
                raise InputError(f"{name} must be finite; got NaN or inf in {n_bad} places. Omit {name}.")
        else:
            array = as_names(array, name)
        object.__setattr__(self, name, array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        values = np.asanyarray(self.values) if dtype is None else np.asanyarray(self.values).astype(dtype, copy=False)
        return values.copy() if copy else values

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values, (n, p)."""
        return self.values.shape


def as_names(values: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Labels, groups and the like of any type as numbers or text, none missing.

    Raises:
        InputError: None, NaN or the like stands for a name.

    Example:
        >>> as_names(np.array(["ann", 7], dtype=object), "groups").tolist()
        ['ann', '7']
    """
    if values.dtype.kind == "O":  # NA of pandas has no truth value
        missing = [one is None or type(one).__name__ == "NAType" or one != one for one in values.tolist()]
        is_missing = np.array(missing, dtype=bool)
    else:
        is_missing = values != values  # NaN and NaT
    if is_missing.any():
        raise InputError(
            f"{name} must be given for every record; got none for {is_missing.sum()} of {len(values)}, the first in "
            f"row {is_missing.argmax()}. Fill them in."
        )
    return values.astype(str) if values.dtype.kind == "O" else values


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest base rows of each query: the answer of ``find_neighbors``.

    Args:
        similarity: (n, k) float64, descending along a row.
        index: (n, k) row of the base; equal similarities stand by smallest index.
    """

    similarity: FloatArray
    index: IndexArray

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True, eq=False)
class Partition:
    """Which training records are to be forgotten and which are kept, by row number.

    Args:
        forget: (n_forget,) sorted rows of the training set.
        retain: (n_retain,) sorted rows; together with ``forget`` every row once.
    """

    forget: IndexArray
    retain: IndexArray


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a classifier says about records, apart from the model that said it.

    Args:
        logits: (n, n_classes) scores before the softmax.
        labels: (n,) true classes as integers.
    """

    logits: FloatArray
    labels: IndexArray

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class TokenReading:
    """What a causal language model says of the completions of n records, token by token.

    Row i belongs to record i; a is the length of the longest completion. Beyond a record's own tokens, numbers are NaN
    and hits False.

    Args:
        log_probs: (n, a) natural logarithm of each token's probability, given all true tokens before it.
        hits: (n, a) whether the token is the likeliest one at its place.
        means: (n, a) mean of log p(token) over the model's own distribution at that place, or None.
        deviations: (n, a) its standard deviation there, or None.
        lens: By layer in forward order, ``log_probs`` as the final norm and head read them from that layer.
        hidden: By layer in forward order, one vector (n, p) per record.

    Example:
        >>> reading = TokenReading(np.log([[0.5, 0.5], [0.25, np.nan]]), np.array([[True, True], [False, False]]))
        >>> reading.lengths.tolist(), reading.losses.round(3).tolist()
        ([2, 1], [0.693, 1.386])
    """

    log_probs: FloatArray
    hits: npt.NDArray[np.bool_]
    means: FloatArray | None = None
    deviations: FloatArray | None = None
    lens: Mapping[str, FloatArray] = field(default_factory=dict)
    hidden: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.log_probs)

    @property
    def lengths(self) -> IndexArray:
        """(n,) tokens of each completion."""
        return np.asarray((~np.isnan(self.log_probs)).sum(axis=1), dtype=np.int64)

    @property
    def losses(self) -> FloatArray:
        """(n,) mean negative log-likelihood per token."""
        return np.asarray(-np.nanmean(self.log_probs, axis=1))


@dataclass(frozen=True, eq=False)
class PatchReading:
    """What a causal language model says of the asked tokens of n records when states of another model are put into it.

    Args:
        base: (n,) mean log-probability of each record's asked tokens in the model as it is.
        layers: By layer in forward order, the same with that layer's states from the other model.
    """

    base: FloatArray
    layers: Mapping[str, FloatArray]
