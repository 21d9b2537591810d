"""The plainest float64 search there is, and inputs that have broken searches before."""

import numpy as np
from hypothesis import strategies as st


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


def _random(random, n, p):
    return random.normal(size=(n, p))


def _clustered(random, n, p):
    spread = 10.0 ** random.integers(-9, 0)
    return random.normal(size=(5, p))[random.integers(0, 5, n)] + spread * random.normal(size=(n, p))


def _duplicated(random, n, p):
    return np.repeat(random.normal(size=(n, p)), random.integers(1, 21, n), axis=0)[:n]


def _zero_rows(random, n, p):
    return random.normal(size=(n, p)) * (random.random((n, 1)) > 0.4)


def _discrete(random, n, p):
    return random.integers(-1, 2, size=(n, p)).astype(float)


def _collapsed(random, n, p):
    return np.ones((n, 1)) * random.normal(size=p)


def _scaled_copies(random, n, p):
    return random.random((n, 1)) * random.normal(size=p)


KINDS = {
    f.__name__[1:]: f for f in (_random, _clustered, _duplicated, _zero_rows, _discrete, _collapsed, _scaled_copies)
}


@st.composite
def row_sets(draw, min_rows=2, max_rows=300):
    kind = draw(st.sampled_from(sorted(KINDS)))
    n, p = draw(st.integers(min_rows, max_rows)), draw(st.integers(1, 9))
    return KINDS[kind](np.random.default_rng(draw(st.integers(0, 2**32 - 1))), n, p)
