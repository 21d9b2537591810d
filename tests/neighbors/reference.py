"""The plainest float64 search there is, and hypothesis's rows of every kind that has broken searches before."""

import numpy as np
from hypothesis import strategies as st

from ruler.testing.engines import KINDS


def unit(rows):
    rows = np.asarray(rows, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms == 0, 1, norms)


def search_plainly(queries, base, k, exclude_self):
    """(n, k) largest dot products of unit rows, descending."""
    products = unit(queries) @ unit(base).T
    if exclude_self:
        np.fill_diagonal(products, -np.inf)
    return -np.sort(-products, axis=1)[:, :k]


@st.composite
def row_sets(draw, min_rows=2, max_rows=300):
    kind = draw(st.sampled_from(sorted(KINDS)))
    n, p = draw(st.integers(min_rows, max_rows)), draw(st.integers(1, 9))
    return KINDS[kind](np.random.default_rng(draw(st.integers(0, 2**32 - 1))), n, p)
