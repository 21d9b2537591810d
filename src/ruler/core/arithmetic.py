"""Row arithmetic in float64 that gives the same bits on every engine, batch and thread.

Library reductions choose their summation order by shape, alignment and device. Here a row is summed by
halving: only elementwise additions, so that NumPy, torch on CPU and torch on CUDA agree to the last bit and a
row's value never depends on the rows beside it. The functions take NumPy arrays and torch tensors alike.
"""

from typing import Any

import numpy as np


def sum_rows(block: Any) -> Any:
    """Sum of each row of ``block`` (n, p) by halving, shape (n,).

    Example:
        >>> sum_rows(np.array([[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]])).tolist()
        [7.0, 3.0]
    """
    width = block.shape[1]
    while width > 1:
        half = width // 2
        folded = block[:, :half] + block[:, half : 2 * half]
        if width % 2:
            folded[:, 0] += block[:, width - 1]
        block, width = folded, half
    return block[:, 0]


def norm_rows(block: Any) -> Any:
    """Euclidean norm of each row of a float64 block, shape (n,).

    Example:
        >>> norm_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [5.0, 0.0]
    """
    squares = sum_rows(block * block)
    if isinstance(squares, np.ndarray):
        return np.sqrt(squares)
    return squares.new_tensor(np.sqrt(squares.cpu().numpy()))  # torch's own root is not always the nearest float


def unit_rows(block: Any, norms: Any) -> Any:
    """Rows divided by their norms; an all-zero row stays zero.

    Example:
        >>> rows = np.array([[3.0, 4.0], [0.0, 0.0]])
        >>> unit_rows(rows, norm_rows(rows)).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    return block / (norms + (norms == 0))[:, None]


def similarity_of_unit_rows(a: Any, b: Any) -> Any:
    """Cosine similarity of paired unit rows as 1 - |a - b|^2 / 2, shape (n,), in [-1, 1].

    Identical rows give exactly 1, where a dot product scatters over several floats. A zero row has similarity
    0 to everything.

    Example:
        >>> a = np.array([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]])
        >>> b = np.array([[0.6, 0.8], [-0.6, -0.8], [0.6, 0.8]])
        >>> similarity_of_unit_rows(a, b).tolist()
        [1.0, -1.0, 0.0]
    """
    difference = a - b
    value = 1.0 - sum_rows(difference * difference) / 2.0
    both_nonzero = (a != 0).any(1) & (b != 0).any(1)
    return value.clip(-1.0, 1.0) * both_nonzero


def iterate_blocks(n_rows: int, block_rows: int) -> "list[tuple[int, int]]":
    """Bounds (start, stop) that cover ``n_rows`` in steps of ``block_rows``.

    Example:
        >>> iterate_blocks(5, 2)
        [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + block_rows, n_rows)) for start in range(0, n_rows, block_rows)]


TIE_SLACK = np.float64(1e-12)
"""Similarities closer than this count as equal when they are ranked, so that mathematical ties tie."""
