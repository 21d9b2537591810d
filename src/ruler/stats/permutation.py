"""Random labellings of two samples."""

import numpy as np
import numpy.typing as npt


def shuffle_labels(rng: np.random.Generator, labels: npt.NDArray[np.bool_], n_draws: int) -> npt.NDArray[np.bool_]:
    """Labels in ``n_draws`` random orders, (n_draws, n).

    Example:
        >>> shuffle_labels(np.random.default_rng(0), np.array([True, False, False]), 4).sum(axis=1).tolist()
        [1, 1, 1, 1]
    """
    given, drawn = labels.astype(np.int64), np.empty((n_draws, len(labels)), dtype=bool)
    row = given.copy()
    for number in range(n_draws):
        row[:] = given
        rng.shuffle(row)  # the same order as of booleans; numbers of eight bytes are moved faster
        drawn[number] = row
    return drawn
