"""Rows as the kernels read them, with a bound on what rounding loses."""

import pytest

from ruler.neighbors.cuda import operands
from ruler.neighbors.cuda.engine import load_rows

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("spread", "n_parts"), [(1.0, 1), (0.1, 3), (1e-6, 0)])
def test_tight_data_is_stored_in_more_parts(spread, n_parts, random):
    rows = torch.from_numpy(1.0 + spread * random.normal(size=(4000, 32)))
    loaded = load_rows(torch, rows.numpy(), "rows", "cpu")
    assert operands.try_sample(torch, loaded, loaded, 1).n_parts == n_parts


@pytest.mark.parametrize("n_parts", [1, 3])
def test_no_product_is_further_off_than_its_bound(n_parts, random):
    loaded = load_rows(torch, random.normal(size=(500, 60)), "rows", "cpu")
    stored = operands.store_rows(torch, loaded, loaded, True, n_parts)
    exact = loaded.block(0, 500) @ loaded.block(0, 500).T
    off = (stored.queries.double() @ stored.base.double().T)[:500, :500] - exact
    assert 0 < float(off.abs().max()) < stored.error < (2e-3 if n_parts == 1 else 1e-4)
