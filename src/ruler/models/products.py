"""Float32 products of linear layers on a CPU, by the quickest library whose bits are those of torch's own layers.

torch multiplies with MKL, which leaves half of the vector unit idle on processors of AMD; oneDNN, which torch comes
with too, does not. Sums of few terms have the same bits in both. Long sums have them if they are cut where MKL cuts
them. Whether a library, or a block of rows, rounds as the whole product of torch does is tried for every shape.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

BLOCK_ROWS = 768
"""Rows per block. Libraries cut long sums where whole numbers of such parts end, mostly after 192, 256 or 384 terms."""

_MKL_TERMS = 192  # of a long sum that MKL adds up at once on processors of AMD
_FEWEST_UNITS = 16
_SUM_ROWS = 256  # that torch adds up by themselves where it sums columns


class Products(NamedTuple):
    """The three products of one linear layer and one block of rows.

    Args:
        apply: Rows (n, n_inputs), weight (n_outputs, n_inputs), bias -> outputs (n, n_outputs).
        pull_back: Gradient at the outputs, weight -> gradient at the rows.
        add_up: Gradient of the weight over earlier rows or None, gradient at the outputs, rows -> the former with these
            rows. May change its first argument.
    """

    apply: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    pull_back: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    add_up: Callable[[torch.Tensor | None, torch.Tensor, torch.Tensor], torch.Tensor]


def _add_up(total: torch.Tensor | None, gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return gradient.t() @ rows if total is None else total.addmm_(gradient.t(), rows)


@cache
def has_onednn() -> bool:
    """Whether torch was built with oneDNN."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]


def multiply(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Compute ``rows @ weight.T + bias`` with oneDNN."""
    found: torch.Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, weight, bias, "none", [], "")
    return found


def _add_up_parts(total: torch.Tensor | None, gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Sum like MKL: part by part."""
    for outer, inner in zip(torch.split(gradient, _MKL_TERMS), torch.split(rows, _MKL_TERMS), strict=True):
        part = multiply(outer.t(), inner.t())
        total = part if total is None else total.add_(part)
    assert total is not None  # there are rows
    return total


TORCH = Products(lambda rows, weight, bias: torch.addmm(bias, rows, weight.t()), torch.mm, _add_up)
ONEDNN = Products(multiply, lambda gradient, weight: multiply(gradient, weight.t()), _add_up_parts)


def sum_parts(block: torch.Tensor) -> torch.Tensor:
    """Column sums of every 256 rows of a block, and in the last row of the rows that are left."""
    cut = block.shape[0] // _SUM_ROWS * _SUM_ROWS
    return torch.stack([*(part.sum(0) for part in torch.split(block[:cut], _SUM_ROWS) if cut), block[cut:].sum(0)])


def join_sums(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Column sums of all blocks, of which all but the last hold whole parts, in the order of ``sum(0)`` of the whole.

    torch adds 16 such parts to each other before it adds them to the total, and begins with what is left over.
    """
    wholes, rest = torch.cat([part[:-1] for part in parts]), parts[-1][-1]
    sums = [group.sum(0) for group in torch.split(wholes, 16)]
    if len(wholes) % 16:
        rest = rest + sums.pop()
    return rest + sum(sums[1:], start=sums[0]) if sums else rest


def list_libraries(n_inputs: int, n_outputs: int) -> list[Products]:
    """What can multiply in a layer here, the quickest first; oneDNN takes long to begin with a small product."""
    return [ONEDNN, TORCH] if min(n_inputs, n_outputs) >= _FEWEST_UNITS and has_onednn() else [TORCH]


def choose_products(n_rows: int, widths: tuple[int, ...]) -> tuple[int, tuple[Products, ...]]:
    """Rows per block, and the products of each layer, that give the bits of torch's layers on as many threads as now.

    Args:
        n_rows: Of the whole; if they are more than those of a block, `join_sums` has the bits of its column sums too.
        widths: Of the rows and of each layer's outputs, in order.
    """
    return _choose(n_rows, widths, torch.get_num_threads())


@cache
def _choose(n_rows: int, widths: tuple[int, ...], n_threads: int) -> tuple[int, tuple[Products, ...]]:
    for block_rows in (min(BLOCK_ROWS, n_rows), n_rows):
        layers = [_find_products(n_rows, block_rows, *layer) for layer in pairwise(widths)]
        sums_hold = block_rows == n_rows or all(_sums_hold(n_rows, block_rows, width) for width in set(widths[1:-1]))
        if sums_hold and all(layers):
            break
    return block_rows, tuple(layer for layer in layers if layer)


def _draw(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Random numbers: another order of additions would show in some of so many."""
    generator = np.random.default_rng(0)
    return [torch.from_numpy(generator.random(shape, dtype=np.float32) * 2 - 1) for shape in shapes]


def _sums_hold(n_rows: int, block_rows: int, width: int) -> bool:
    (whole,) = _draw((n_rows, width))
    return torch.equal(join_sums([sum_parts(block) for block in torch.split(whole, block_rows)]), whole.sum(0))


def _find_products(n_rows: int, block_rows: int, n_inputs: int, n_outputs: int) -> Products | None:
    """The products whose results for blocks are, to the bit, those of torch for the whole; None if one has no such."""
    rows, gradient, weight, bias = _draw((n_rows, n_inputs), (n_rows, n_outputs), (n_outputs, n_inputs), (n_outputs,))

    def apply(library: Products, size: int) -> torch.Tensor:
        return torch.cat([library.apply(block, weight, bias) for block in torch.split(rows, size)])

    def pull_back(library: Products, size: int) -> torch.Tensor:
        return torch.cat([library.pull_back(block, weight) for block in torch.split(gradient, size)])

    def add_up(library: Products, size: int) -> torch.Tensor:
        total: Any = None
        for blocks in zip(torch.split(gradient, size), torch.split(rows, size), strict=True):
            total = library.add_up(total, *blocks)
        return total  # type: ignore[no-any-return]

    found: list[Any] = []
    libraries = list_libraries(n_inputs, n_outputs)
    for place, compute in enumerate((apply, pull_back, add_up)):
        whole = compute(TORCH, n_rows)
        alike = (library for library in libraries if torch.equal(compute(library, block_rows), whole))
        if (library := next(alike, None)) is None:
            return None
        found.append(library[place])
    return Products(*found)
