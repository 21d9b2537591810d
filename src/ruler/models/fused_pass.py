"""The paper's perceptron in train mode, forward and backward, over blocks of rows that stay in a core's cache.

Layer by layer, each of a dozen steps writes all hidden units to memory, from where the next one reads them. Here a
block of rows goes through all steps before the next block. The weights are the same, bit for bit: every product, sum
and rounding is that of the layers (`ruler.models.products`).
"""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.autograd.function import once_differentiable

from ruler.core.arithmetic import iterate_blocks
from ruler.models.products import TORCH, choose_products, join_sums, sum_parts

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
        ctx.block_rows, ctx.products = choose_products(n_rows, (rows.shape[1], hidden, hidden, len(weight_3)))
        factors = _list_factors(ctx.scale)
        noise = torch.empty(min(ctx.block_rows, n_rows), hidden)
        units = [rows.new_empty(n_rows, hidden) for _ in range(2)]
        logits = rows.new_empty(n_rows, len(weight_3))
        layers = list(zip(ctx.products, (weight_1, weight_2), (bias_1, bias_2), (mask_1, mask_2), units, strict=False))
        for start, stop in iterate_blocks(n_rows, ctx.block_rows):
            block, factor = rows[start:stop], noise[: stop - start]
            eighths = factor.view(-1, 8).numpy()
            for products, weight, bias, mask, own in layers:
                bits = mask[start * hidden // 8 : stop * hidden // 8]
                np.take(factors, bits, axis=0, out=eighths, mode="clip")
                block = torch.mul(products.apply(block, weight, bias).relu_(), factor, out=own[start:stop])
            logits[start:stop] = ctx.products[2].apply(block, weight_3, bias_3)
        ctx.save_for_backward(rows, weight_2, weight_3)
        ctx.units = units
        return logits

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, at_logits: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The gradient; the units are used up."""
        (rows, weight_2, weight_3), (first, second) = ctx.saved_tensors, ctx.units
        del ctx.units  # a second gradient of the same pass fails
        block_rows, (layer_1, layer_2, layer_3) = ctx.block_rows, ctx.products
        if not at_logits.is_contiguous():  # a library may round products of such a gradient otherwise
            block_rows, (layer_1, layer_2, layer_3) = len(rows), (TORCH,) * 3
        weights: list[torch.Tensor | None] = [None] * 3
        parts: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        for start, stop in iterate_blocks(len(rows), block_rows):
            part = slice(start, stop)
            weights[2] = layer_3.add_up(weights[2], at_logits[part], second[part])
            outer = _pass_active_(layer_3.pull_back(at_logits[part], weight_3), second[part], ctx.scale)
            weights[1] = layer_2.add_up(weights[1], outer, first[part])
            inner = _pass_active_(layer_2.pull_back(outer, weight_2), first[part], ctx.scale)
            weights[0] = layer_1.add_up(weights[0], inner, rows[part])
            for sums, gradient in zip(parts, (inner, outer), strict=True):
                sums.append(gradient.sum(0) if block_rows == len(rows) else sum_parts(gradient))
        biases = [*(sums[0] if block_rows == len(rows) else join_sums(sums) for sums in parts), at_logits.sum(0)]
        return None, *(found for pair in zip(weights, biases, strict=True) for found in pair), None, None, None


def _pass_active_(gradient: torch.Tensor, units: torch.Tensor, scale: float) -> torch.Tensor:
    """Let a gradient through ReLU and dropout, in place: where the unit is above zero."""
    torch.ops.aten.threshold_backward.grad_input(gradient, units, 0.0, grad_input=gradient)
    return gradient.mul_(scale)


@cache
def _list_factors(scale: float) -> npt.NDArray[np.float32]:
    """The factors of eight units by the byte that holds their bits, (256, 8)."""
    bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    return bits.astype(np.float32) * np.float32(scale)
