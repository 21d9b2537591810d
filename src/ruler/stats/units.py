"""Which records stand or fall together: the units that are permuted and drawn anew."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.stats.auc import Codes

_BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Units:
    """Two samples of records and the units they are made of; the first sample's units come first.

    Args:
        codes: (n,) unit 0..u-1 of each record, first sample then second.
        n_first: Units of the first sample.
        n_records_first: Its records.
        is_grouped: Some unit holds more than one record.
    """

    codes: Codes
    n_first: int
    n_records_first: int
    is_grouped: bool

    @property
    def n(self) -> int:
        """All units."""
        return int(self.codes.max()) + 1

    @property
    def n_second(self) -> int:
        """Units of the second sample."""
        return self.n - self.n_first

    @property
    def sparse_codes(self) -> Codes | None:
        """Codes where groups matter; None where every record is its own unit."""
        return self.codes if self.is_grouped else None

    def iterate_blocks(self, n_draws: int) -> Iterator[int]:
        """Sizes of blocks that together make ``n_draws``, small enough to be held in memory."""
        size = max(1, _BLOCK_ELEMENTS // len(self.codes))
        for start in range(0, n_draws, size):
            yield min(size, n_draws - start)

    def draw_weights(self, n_draws: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """How often each record is in a bootstrap draw of whole units, (n_draws, n) for either sample.

        Example:
            >>> units = find_units(2, 3)
            >>> first, second = units.draw_weights(4, np.random.default_rng(0))
            >>> first.sum(axis=1).tolist(), second.sum(axis=1).tolist()
            ([2.0, 2.0, 2.0, 2.0], [3.0, 3.0, 3.0, 3.0])
        """
        counts = np.zeros((n_draws, self.n))
        for low, high in ((0, self.n_first), (self.n_first, self.n)):
            drawn = rng.integers(low, high, size=(n_draws, high - low)) + self.n * np.arange(n_draws)[:, None]
            counts += np.bincount(drawn.ravel(), minlength=counts.size).reshape(counts.shape)
        weights = counts[:, self.codes] if self.is_grouped else counts
        is_first = np.arange(len(self.codes)) < self.n_records_first
        return weights * is_first, weights * ~is_first


def find_units(n_first: int, n_second: int, groups_first: Any = None, groups_second: Any = None) -> Units:
    """Units of two samples: whole groups where they are given, else single records.

    Args:
        n_first: Records of the first sample.
        n_second: Records of the second.
        groups_first: (n_first,) labels, or None.
        groups_second: (n_second,) labels, or None. A label that both samples hold names two units.

    Raises:
        InputError: Not one label a record.

    Example:
        >>> find_units(3, 2, ["ann", "bob", "ann"]).codes.tolist()
        [0, 1, 0, 2, 3]
    """
    first, n_units_first = _encode(groups_first, n_first)
    second, n_units_second = _encode(groups_second, n_second)
    codes = np.concatenate([first, second + n_units_first])
    return Units(codes, n_units_first, n_first, n_units_first + n_units_second < len(codes))


def _encode(groups: npt.ArrayLike | None, n: int) -> tuple[Codes, int]:
    if groups is None:
        return np.arange(n), n
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(f"groups must be one label a record, shape ({n},); got shape {labels.shape}. Label each.")
    codes = np.unique(labels, return_inverse=True)[1]
    # In order of first sight, which keeps single records in their own order.
    _, first_seen = np.unique(codes, return_index=True)
    rank = np.empty(len(first_seen), dtype=np.intp)
    rank[np.argsort(first_seen)] = np.arange(len(first_seen))
    return rank[codes], len(first_seen)
