"""Records that stand in the forget set and in the retain set alike: unlearning cannot remove them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import IndexArray, Partition


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Forget records that have an identical record in the retain set.

    Args:
        rows: (m, 2) training rows: the forget record and its first twin in the retain set.
        ids: (m, 2) the same pairs by the records' names.
        n_twins: (m,) how many retain records are identical to the forget record.
        n_forget: Size of the whole forget set.
    """

    rows: IndexArray
    ids: npt.NDArray[Any]
    n_twins: IndexArray
    n_forget: int

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return f"{len(self)} of {self.n_forget} forget records have an identical record in the retain set"


def find_duplicates(features: npt.ArrayLike, partition: Partition, *, ids: npt.ArrayLike | None = None) -> Duplicates:
    """Which records would stay known although they are forgotten, because a retained record is identical?

    Args:
        features: (n, ...) training records: vectors, images, or a 1-D array of texts.
        partition: Which of them are to be forgotten.
        ids: (n,) names of the records; row numbers when not given.

    Returns:
        Duplicates, one entry a forget record with a twin; identical means equal in every value.

    Raises:
        InputError: Not one record, or one id, a row of the partition.

    Example:
        >>> found = find_duplicates([[1, 2], [3, 4], [1, 2]], Partition(np.array([0]), np.array([1, 2])))
        >>> found.rows.tolist(), str(found)
        ([[0, 2]], '1 of 1 forget records have an identical record in the retain set')
    """
    records = np.asarray(features)
    names = np.arange(len(records)) if ids is None else np.asarray(ids)
    n_rows = len(partition.forget) + len(partition.retain)
    if len(records) != n_rows or names.shape != (n_rows,):
        raise InputError(
            f"features and ids must be one entry a record of the partition, {n_rows}; got {len(records)} and "
            f"{len(names)}. Give all training records, forget and retain."
        )
    keys = _as_keys(records)
    twins: dict[Any, list[int]] = {keys[row]: [] for row in partition.forget.tolist()}
    for row in partition.retain.tolist():
        if (known := twins.get(keys[row])) is not None:
            known.append(row)
    found = [row for row in partition.forget.tolist() if twins[keys[row]]]
    pairs = np.array([(row, twins[keys[row]][0]) for row in found], dtype=np.int64).reshape(-1, 2)
    n_twins = np.array([len(twins[keys[row]]) for row in found], dtype=np.int64)
    return Duplicates(rows=pairs, ids=names[pairs], n_twins=n_twins, n_forget=len(partition.forget))


def _as_keys(records: npt.NDArray[Any]) -> list[Any]:
    if records.ndim == 1:
        return list(records.tolist())
    if records.dtype.kind == "f":
        records = records + 0.0  # minus zero equals zero, though its bytes differ
    flat = np.ascontiguousarray(records).reshape(len(records), -1)
    return [row.tobytes() for row in flat]
