"""Rotary positions of language models in one kernel forwards and one backwards, for queries and for keys."""

# Triton reads the kernel rather than Python: no types but constexpr, which it writes in capitals.
# mypy: disable-error-code="no-untyped-def, untyped-decorator, import-not-found"
# ruff: noqa: N803
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ruler.training.fused import replaced_function

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError:  # without Triton the models' own function stays
    triton = tl = None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_jit = triton.jit if triton else (lambda function: function)


@contextmanager
def fused_rotation(model: nn.Module) -> Iterator[None]:
    """While this lasts, transformers models of this one's module rotate queries and keys by one kernel each.

    Theirs takes about ten kernels forwards and more backwards. The sum is rounded once instead of at every step.
    Models whose rotation is another, and machines without Triton, keep their own.

    Example:
        >>> with fused_rotation(nn.Linear(2, 2)):  # no rotation: nothing happens
        ...     pass
    """

    def choose(own: Callable[..., Any]) -> Callable[..., Any]:
        return rotate if triton is not None and _rotates_halves(own) else own

    with replaced_function(model, "apply_rotary_pos_emb", choose):
        yield


def _rotates_halves(function: Callable[..., Any]) -> bool:
    """Whether this function does what `rotate` does, tried on a few numbers."""
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(2, heads, 3, 4, generator=generator) for heads in (2, 1))
    cos, sin = (torch.randn(2, 3, 2, generator=generator).repeat(1, 1, 2) for _ in range(2))
    try:
        found = function(queries, keys, cos, sin)
        wanted = [_rotate_plainly(states, cos, sin) for states in (queries, keys)]
        return all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found, wanted, strict=True))
    except (TypeError, ValueError, RuntimeError):
        return False


def _rotate_plainly(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, dimension: int = 1) -> torch.Tensor:
    first, second = states.chunk(2, dim=-1)
    return states * cos.unsqueeze(dimension) + torch.cat([-second, first], dim=-1) * sin.unsqueeze(dimension)


def rotate(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (n, heads, t, d), the halves of each head turned by the angles of its place.

    Args:
        cos: (n or 1, t, d) of the angles; both halves alike.
        sin: Of the same shape.
        unsqueeze_dim: Where the heads are; if not at 1, or off CUDA, no kernel is used.
    """
    if unsqueeze_dim != 1 or not q.is_cuda:
        return _rotate_plainly(q, cos, sin, unsqueeze_dim), _rotate_plainly(k, cos, sin, unsqueeze_dim)
    apply: Any = _Rotation.apply
    return apply(q, cos, sin), apply(k, cos, sin)


class _Rotation(torch.autograd.Function):
    """The gradient of a rotation is the rotation back."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cos, sin)
        return _launch(states, cos, sin, is_back=False)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _launch(gradient, *ctx.saved_tensors, is_back=True), None, None


def _launch(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, is_back: bool) -> torch.Tensor:
    n, heads, places, width = states.shape
    turned = torch.empty((n, places, heads, width), dtype=states.dtype, device=states.device).transpose(1, 2)
    cos, sin = (angles.expand(n, places, width) for angles in (cos, sin))
    _turn_halves[(n * places,)](
        states,
        turned,
        cos,
        sin,
        places,
        heads,
        *states.stride(),
        *turned.stride(),
        *cos.stride(),
        *sin.stride(),
        HALF=width // 2,
        HEADS=triton.next_power_of_2(heads),
        PADDED=triton.next_power_of_2(width // 2),
        IS_BACK=is_back,
        num_warps=4,
    )
    return turned


@_jit
def _turn_halves(
    states,
    turned,
    cos,
    sin,
    places,
    heads,
    s_n,
    s_h,
    s_t,
    s_d,
    t_n,
    t_h,
    t_t,
    t_d,
    c_n,
    c_t,
    c_d,
    n_n,
    n_t,
    n_d,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
    PADDED: tl.constexpr,
    IS_BACK: tl.constexpr,
):
    """A program turns all heads of one place of one record."""
    record, place = tl.program_id(0) // places, tl.program_id(0) % places
    head, inside = tl.arange(0, HEADS)[:, None], tl.arange(0, PADDED)[None, :]
    is_there = (head < heads) & (inside < HALF)
    own = states + record.to(tl.int64) * s_n + place * s_t + head * s_h + inside * s_d
    first = tl.load(own, is_there).to(tl.float32)
    second = tl.load(own + HALF * s_d, is_there).to(tl.float32)
    at = cos + record.to(tl.int64) * c_n + place * c_t + inside * c_d
    cosine = tl.load(at, inside < HALF).to(tl.float32)
    at = sin + record.to(tl.int64) * n_n + place * n_t + inside * n_d
    sine = tl.load(at, inside < HALF).to(tl.float32)
    if IS_BACK:
        sine = -sine
    out = turned + record.to(tl.int64) * t_n + place * t_t + head * t_h + inside * t_d
    tl.store(out, (first * cosine - second * sine).to(turned.dtype.element_ty), is_there)
    tl.store(out + HALF * t_d, (second * cosine + first * sine).to(turned.dtype.element_ty), is_there)
