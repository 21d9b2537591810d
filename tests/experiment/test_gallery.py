"""The nearest gallery row is the one that the search finds, to the last bit."""

import numpy as np
import pytest
import torch

import ruler.experiment.gallery as module
from ruler.experiment.gallery import find_nearest
from ruler.experiment.scores import divide_by_norms
from ruler.neighbors import find_neighbors


def make_rows(n: int, *, seed: int, width: int = 128) -> torch.Tensor:
    """Representations as a ReLU leaves them: many zeros, some rows all zero, directions close to each other."""
    random = np.random.RandomState(seed)
    rows = np.maximum(random.randn(n, width) * 0.3 + random.randn(width), 0).astype(np.float32)
    rows[[3, 150 % n]] = 0.0
    return torch.from_numpy(rows)


def test_similarities_are_the_searchs_to_the_last_bit() -> None:
    models = [make_rows(300, seed=seed) for seed in (0, 1, 2)]
    units = torch.stack([divide_by_norms(rows) for rows in models])
    to_forget, forget_holds = find_nearest(units[:, :100], units[:, 100:])
    to_gallery, gallery_holds = find_nearest(units[:, 100:], units[:, 100:], is_self=True)
    assert forget_holds.all()
    assert gallery_holds.all()
    for rows, queries, own in zip(models, to_forget, to_gallery, strict=True):
        forget, gallery = rows[:100], rows[100:]
        assert np.array_equal(queries.numpy(), find_neighbors(forget, gallery).similarity[:, 0])
        assert np.array_equal(own.numpy(), find_neighbors(gallery, gallery, exclude_self=True).similarity[:, 0])


@pytest.mark.parametrize("n_products", [1, 5000, 1 << 27])
def test_blocks_change_nothing(n_products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    units = torch.stack([divide_by_norms(make_rows(80, seed=seed)) for seed in (0, 1)])
    expected, _ = find_nearest(units, units, is_self=True)
    monkeypatch.setitem(module._PRODUCTS, "cpu", n_products)
    found, _ = find_nearest(units, units, is_self=True)
    assert torch.equal(found, expected)


def test_products_that_tie_are_compared_exactly() -> None:
    random = np.random.RandomState(0)
    query = random.rand(1, 128)
    near = np.concatenate([query * (1 + 1e-15 * random.randn(1, 128)), query, random.rand(5, 128)])
    units = divide_by_norms(near)
    queries, base = torch.from_numpy(divide_by_norms(query))[None], torch.from_numpy(units)[None]
    found, holds = find_nearest(queries, base)
    assert found.item() == 1.0
    assert holds.item()


def test_more_ties_than_are_compared_are_told_of_for_their_model_alone() -> None:
    rows = divide_by_norms(np.random.RandomState(0).rand(2, 6, 8).reshape(12, 8)).reshape(2, 6, 8)
    rows[1, 3:] = rows[1, 2]
    _, holds = find_nearest(torch.from_numpy(rows), torch.from_numpy(rows), is_self=True)
    assert holds.tolist() == [True, False]


def test_a_single_row_has_no_neighbour() -> None:
    row = torch.ones(1, 1, 1, dtype=torch.float64)
    assert not find_nearest(row, row, is_self=True)[1].item()
