"""Products of blocks have the bits of torch's products of the whole, whichever library they come from."""

from itertools import pairwise

import pytest
import torch

from ruler.models import products
from ruler.models.products import BLOCK_ROWS, ONEDNN, TORCH, choose_products, join_sums, list_libraries, sum_parts

WIDTHS = 6, 128, 128, 2


@pytest.fixture(autouse=True)
def tried_anew():
    products._choose.cache_clear()
    yield
    products._choose.cache_clear()


def draw(*shape, seed):
    return torch.empty(shape).normal_(generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n_rows", [1, 191, 768, 2305, 15216])
@pytest.mark.parametrize("widths", [WIDTHS, (14, 64, 64, 5), (20, 24, 24, 2)])
def test_chosen_products_are_those_of_torch_for_the_whole(n_rows, widths):
    block_rows, layers = choose_products(n_rows, widths)
    for (n_inputs, n_outputs), layer in zip(pairwise(widths), layers, strict=True):
        rows, gradient = draw(n_rows, n_inputs, seed=1), draw(n_rows, n_outputs, seed=2)
        weight, bias = draw(n_outputs, n_inputs, seed=3), draw(n_outputs, seed=4)
        applied = torch.cat([layer.apply(block, weight, bias) for block in rows.split(block_rows)])
        pulled = torch.cat([layer.pull_back(block, weight) for block in gradient.split(block_rows)])
        total = None
        for outer, inner in zip(gradient.split(block_rows), rows.split(block_rows), strict=True):
            total = layer.add_up(total, outer, inner)
        assert torch.equal(applied, torch.nn.functional.linear(rows, weight, bias))
        assert torch.equal(pulled, gradient @ weight)
        assert torch.equal(total, gradient.t() @ rows)
        if block_rows < n_rows and n_outputs == widths[1]:
            assert torch.equal(join_sums([sum_parts(block) for block in gradient.split(block_rows)]), gradient.sum(0))


def test_column_sums_of_blocks_join_to_those_of_the_whole_within_rounding():
    for n_rows in (5, 256, 767, 5000, 70_001):
        values = draw(n_rows, 40, seed=n_rows)
        joined = join_sums([sum_parts(block) for block in values.split(BLOCK_ROWS)])
        assert torch.allclose(joined, values.double().sum(0).float(), atol=1e-3)


@pytest.mark.parametrize("what", ["apply", "pull_back", "add_up"])
def test_a_library_that_rounds_otherwise_is_not_chosen(what, monkeypatch):
    def compute_in_float64(*given):
        return getattr(TORCH, what)(*(None if part is None else part.double() for part in given)).float()

    monkeypatch.setattr(products, "ONEDNN", ONEDNN._replace(**{what: compute_in_float64}))
    monkeypatch.setattr(products, "list_libraries", lambda *layer: [products.ONEDNN, TORCH])
    _, layers = choose_products(1000, WIDTHS)
    assert getattr(layers[1], what) is getattr(TORCH, what)


@pytest.mark.parametrize("what", ["products", "sums"])
def test_blocks_that_round_otherwise_are_noticed(what, monkeypatch):
    if what == "sums":
        monkeypatch.setattr(products, "join_sums", lambda parts: torch.cat(list(parts)).double().sum(0).float())
    else:

        def add_rounded(total, gradient, rows):
            found = (gradient.T.double() @ rows.double()).float()  # each block is rounded once more
            return found if total is None else found + total

        monkeypatch.setattr(products, "TORCH", TORCH._replace(add_up=add_rounded))
        monkeypatch.setattr(products, "list_libraries", lambda *layer: [products.TORCH])
    assert choose_products(3000, WIDTHS)[0] == 3000


def test_torch_multiplies_alone_where_onednn_is_not_there_or_slower(monkeypatch):
    assert list_libraries(6, 128) == [TORCH]
    monkeypatch.setattr(products, "has_onednn", lambda: False)
    assert list_libraries(128, 128) == [TORCH]
