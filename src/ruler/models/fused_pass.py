"""The paper's perceptron in train mode, forward and backward, over blocks of rows that stay in a core's cache.

Layer by layer, each of a dozen steps writes all hidden units to memory, from where the next one reads them. Here a
block of rows goes through all steps before the next block. The weights are the same, bit for bit: every product, sum
and rounding is that of the layers. A library may round the product of a block otherwise than that of the whole; where
`rounds_blocks_alike` finds this, the whole is one block.
"""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import once_differentiable

from ruler.core.arithmetic import iterate_blocks

BLOCK_ROWS = 768
"""Rows per block. Libraries cut long sums where whole numbers of such parts end, mostly after 192, 256 or 384 terms."""

Packed = npt.NDArray[np.uint8]


class FusedPass(torch.autograd.Function):
    """Logits of a perceptron with two hidden layers, each with ReLU and dropout.

    Called with contiguous rows (n, d), weight and bias of each layer in order, the dropout masks of both hidden
    layers as packed bits (n * hidden / 8,), and the dropout rate. Gradients reach weights and biases alone, once.
    """

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, *given: Any) -> torch.Tensor:
        """Keep the units of both hidden layers for the gradient."""
        weight_1, bias_1, weight_2, bias_2, weight_3, bias_3, mask_1, mask_2, rate = given
        n_rows, hidden = len(rows), len(weight_1)
        ctx.scale = 1 / (1 - rate)
        ctx.block_rows = choose_block_rows(n_rows, (rows.shape[1], hidden, len(weight_3)))
        factors = _list_factors(ctx.scale)
        noise = torch.empty(min(ctx.block_rows, n_rows), hidden)
        units = [rows.new_empty(n_rows, hidden) for _ in range(2)]
        logits = rows.new_empty(n_rows, len(weight_3))
        layers = list(zip((weight_1.t(), weight_2.t()), (bias_1, bias_2), (mask_1, mask_2), units, strict=True))
        for start, stop in iterate_blocks(n_rows, ctx.block_rows):
            block, factor = rows[start:stop], noise[: stop - start]
            eighths = factor.view(-1, 8).numpy()
            for weight, bias, mask, own in layers:
                block = torch.addmm(bias, block, weight, out=own[start:stop])
                bits = mask[start * hidden // 8 : stop * hidden // 8]
                np.take(factors, bits, axis=0, out=eighths, mode="clip")
                block.relu_().mul_(factor)
            torch.addmm(bias_3, block, weight_3.t(), out=logits[start:stop])
        ctx.save_for_backward(rows, weight_2, weight_3)
        ctx.units = units
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, at_logits: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient; the units are used up."""
        (rows, weight_2, weight_3), (first, second) = ctx.saved_tensors, ctx.units
        del ctx.units  # a second gradient of the same pass fails
        at_second, at_first = torch.empty_like(second), second  # whose rows are overwritten when they are done with
        products = [rows.new_empty(0) for _ in range(3)]
        for start, stop in iterate_blocks(len(rows), ctx.block_rows if at_logits.is_contiguous() else len(rows)):
            part = slice(start, stop)
            add_product(products[2], at_logits[part], second[part])
            outer = torch.mm(at_logits[part], weight_3, out=at_second[part])
            _pass_active_(outer, second[part], ctx.scale)
            add_product(products[1], outer, first[part])
            inner = torch.mm(outer, weight_2, out=at_first[part])
            _pass_active_(inner, first[part], ctx.scale)
            add_product(products[0], inner, rows[part])
        sums = [gradient.sum(0) for gradient in (at_first, at_second, at_logits)]
        return None, *(found for pair in zip(products, sums, strict=True) for found in pair), None, None, None


def add_product(total: torch.Tensor, gradient: torch.Tensor, inputs: torch.Tensor) -> None:
    """Add the gradient of a weight over some rows; an empty total becomes it."""
    if total.numel():
        total.addmm_(gradient.t(), inputs)
    else:
        torch.mm(gradient.t(), inputs, out=total)


def _pass_active_(gradient: torch.Tensor, units: torch.Tensor, scale: float) -> None:
    """Let a gradient through ReLU and dropout, in place: where the unit is above zero."""
    torch.ops.aten.threshold_backward.grad_input(gradient, units, 0.0, grad_input=gradient).mul_(scale)


@cache
def _list_factors(scale: float) -> npt.NDArray[np.float32]:
    """The factors of eight units by the byte that holds their bits, (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return bits.astype(np.float32) * np.float32(scale)


def choose_block_rows(n_rows: int, widths: tuple[int, int, int]) -> int:
    """Rows per block for this data and these layers, on as many threads as torch has now.

    Args:
        widths: Features, hidden units and classes.
    """
    if n_rows <= BLOCK_ROWS or not rounds_blocks_alike(n_rows, widths, torch.get_num_threads()):
        return n_rows
    return BLOCK_ROWS


@cache
def rounds_blocks_alike(n_rows: int, widths: tuple[int, int, int], n_threads: int) -> bool:
    """Are products of blocks of rows the rows of the whole product, and their sums the whole sum, to the bit?

    Tried on random numbers of the very shapes: another order of additions would show in some of so many.
    """
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.empty(shape).uniform_(-1, 1, generator=generator)

    blocks = iterate_blocks(n_rows, BLOCK_ROWS)
    for n_inputs, n_outputs in pairwise((widths[0], widths[1], *widths[1:])):
        rows, gradient, weight, bias = (
            draw(*shape) for shape in ((n_rows, n_inputs), (n_rows, n_outputs), (n_outputs, n_inputs), (n_outputs,))
        )
        whole = torch.addmm(bias, rows, weight.t()), gradient @ weight
        total, summed = rows.new_empty(0), rows.new_empty(0)
        add_product(total, gradient, rows)
        for start, stop in blocks:
            found = torch.addmm(bias, rows[start:stop], weight.t()), gradient[start:stop] @ weight
            if not all(torch.equal(a, b[start:stop]) for a, b in zip(found, whole, strict=True)):
                return False
            add_product(summed, gradient[start:stop], rows[start:stop])
        if not torch.equal(total, summed):
            return False
    return True
