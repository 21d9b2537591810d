"""Products with the inverse of a curvature, by conjugate gradients: for steps that need no matrix."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ruler.training.steps import compute_logits

Product = Callable[[torch.Tensor], torch.Tensor]
_TOLERANCE = 1e-5
_BLOCK = 256  # records per forward pass


def solve(product: Product, target: torch.Tensor, n_steps: int) -> torch.Tensor:
    """x with product(x) = target, for a product with a positive definite matrix.

    Args:
        product: (p,) -> (p,).
        target: (p,).
        n_steps: At most; fewer if the residual is a 100,000th of the target before.

    Example:
        >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        >>> solve(lambda x: matrix @ x, torch.tensor([3.0, 4.0]), 10).round(decimals=4).tolist()
        [1.0, 1.0]
    """
    x, residual = torch.zeros_like(target), target.clone()
    direction, size = residual.clone(), residual.dot(residual)
    enough = _TOLERANCE**2 * size
    for _ in range(n_steps):
        if size <= enough:
            break
        moved = product(direction)
        step = size / direction.dot(moved)
        x += step * direction
        residual -= step * moved
        size, before = residual.dot(residual), size
        direction = residual + (size / before) * direction
    return x


def multiply_by_fisher(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> Product:
    """x -> mean over records of g (g . x), g the gradient of a record's cross-entropy in eval mode, which is set.

    x is flat: all trained parameters in the order of ``named_parameters``.
    """
    values = [value for value in model.parameters() if value.requires_grad]
    model.eval()

    def multiply(x: torch.Tensor) -> torch.Tensor:
        parts = torch.split(x, [value.numel() for value in values])
        directions = [part.reshape(value.shape) for value, part in zip(values, parts, strict=True)]
        total = torch.zeros_like(x)
        for rows, answers in zip(torch.split(inputs, _BLOCK), torch.split(labels, _BLOCK), strict=True):
            with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be derived twice
                losses = functional.cross_entropy(compute_logits(model, rows), answers, reduction="none")
                weights = torch.ones_like(losses, requires_grad=True)
                options: dict[str, Any] = {"materialize_grads": True}
                sums = torch.autograd.grad(losses, values, weights, create_graph=True, **options)
                along = torch.stack([(one * two).sum() for one, two in zip(sums, directions, strict=True)]).sum()
                (slopes,) = torch.autograd.grad(along, weights, retain_graph=True)  # g . x of each record
                found = torch.autograd.grad(losses, values, slopes, **options)
            total += torch.cat([one.flatten() for one in found])
        return total / len(labels)

    return multiply
