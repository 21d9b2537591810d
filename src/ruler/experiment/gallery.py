"""How close do records come to a gallery of a few thousand? All products of many models at once, where they lie."""

from typing import TYPE_CHECKING

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows

if TYPE_CHECKING:
    import torch

_PRODUCTS = {"cpu": 1 << 20, "cuda": 1 << 27}
"""Float64 products a block: they stay in a CPU's cache, or keep a GPU busy."""

_MOST_TIED = 2  # gallery rows that may be nearest within rounding; among distinct records three are a collapsed model
_ROUNDING = 16 * 2.0**-52  # of a product and of a similarity, a column, with room to spare


def find_nearest(
    queries: "torch.Tensor", base: "torch.Tensor", *, is_self: bool = False
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """How similar is the most similar base row of each query? To the last bit what ``find_neighbors`` says.

    Products name the rows that may be nearest, and these are compared exactly, as there. Nothing waits for the device:
    no shape depends on what is found.

    Args:
        queries: (models, n, p) rows of norm 1 or 0, float64.
        base: (models, m, p) the same.
        is_self: The queries are the base; row i is then no neighbour of itself.

    Returns:
        Similarities (models, n), and for each model whether they hold, (models,): not where more rows tie than were
        compared. ``find_neighbors`` is then the way.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]], dtype=torch.float64)
        >>> similarity, holds = find_nearest(rows, rows, is_self=True)
        >>> [round(value, 12) for value in similarity[0].tolist()], holds.tolist()
        ([0.6, 0.8, 0.8], [True])
    """
    n_models, n_queries = queries.shape[:2]
    nearest = queries.new_empty(n_models, n_queries)
    holds = queries.new_ones(n_models).bool()
    most = _PRODUCTS.get(queries.device.type, _PRODUCTS["cuda"])
    for start, stop in iterate_blocks(n_queries, max(1, most // (n_models * base.shape[1]))):
        products = queries[:, start:stop] @ base.mT
        if is_self:
            products.diagonal(offset=start, dim1=1, dim2=2).fill_(-float("inf"))
        nearest[:, start:stop], is_settled = _compare_best(queries[:, start:stop], base, products)
        holds &= is_settled
    return nearest, holds


def _compare_best(
    queries: "torch.Tensor", base: "torch.Tensor", products: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Exact similarities of the largest products; spoils ``products``."""
    nearest, value = _compare_largest(queries, base, products)
    floor = value - _ROUNDING * (base.shape[2] + 4)
    for _ in range(_MOST_TIED - 1):
        similarity, value = _compare_largest(queries, base, products)
        nearest = similarity.where(value >= floor, nearest).maximum(nearest)
    is_settled = (products.amax(dim=2) < floor) | (queries == 0).all(dim=2)  # a zero row is as far from all
    return nearest, is_settled.all(dim=1)


def _compare_largest(
    queries: "torch.Tensor", base: "torch.Tensor", products: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """The exact similarity at the largest product of each query, and that product, which is struck out."""
    value, index = products.max(dim=2, keepdim=True)
    found = base.gather(1, index.expand(-1, -1, base.shape[2]))
    products.scatter_(2, index, -float("inf"))
    similarity = similarity_of_unit_rows(queries.flatten(0, 1), found.flatten(0, 1))
    return similarity.view(value.shape[:2]), value[:, :, 0]
