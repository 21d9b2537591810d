"""Activation patching: what a causal language model says when one layer's states come from another model."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import FloatArray, PatchReading
from ruler.embeddings.language.tokens import Precision, prepared, score_logits

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ruler.embeddings.language.causal import CausalParts, TokenBatch


def patch_layers(
    target: "torch.nn.Module",
    source: "torch.nn.Module",
    data: Mapping[str, Any],
    *,
    precision: Precision = "float32",
    batch_tokens: int = 8192,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> PatchReading:
    """How likely do the asked tokens stay in ``target`` if one layer's states come from ``source``?

    For every decoder block, the states that leave it at the places that predict an asked token are replaced by those of
    the source model on the same tokens; blocks above continue from there. Both models read the true tokens (teacher
    forcing), run in eval mode and are left as they were. The blocks below the replaced one are not run again.

    Args:
        target: The causal language model that answers.
        source: One of the same shape.
        data: ``input_ids``, ``labels`` and, if there, ``attention_mask``, each (n, t), padded on the right. Labels are
            -100 except on the asked tokens, such as those of an entity.
        precision: "bfloat16" computes under autocast; "float32" as the weights are stored, without TF32.
        batch_tokens: Tokens per forward pass, padding included. States of all blocks are kept for one batch.
        device: Where to run; by default where the models are.
        progress: Show a progress bar, if standard error is a terminal.

    Raises:
        InputError: Models of different shape, or data that cannot be read.
        LayerNotFoundError: Not causal language models.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=2, n_head=1)
        >>> model, data = GPT2LMHeadModel(config), {"input_ids": [[1, 2, 3]], "labels": [[-100, 2, 3]]}
        >>> reading = patch_layers(model, model, data)
        >>> [bool(abs(own - reading.base) < 1e-6) for own in reading.layers.values()]
        [True, True]
    """
    torch = load_optional("torch", "patching a language model")
    from ruler.embeddings.language.causal import plan_batches

    batches = plan_batches(data, batch_tokens)
    with (
        prepared(target, batches, precision=precision, device=device) as (own, run_device),
        prepared(source, batches, precision=precision, device=device) as (other, _),
    ):
        if list(own.blocks) != list(other.blocks):
            raise InputError(
                f"source must have the blocks of target, {len(own.blocks)}; got {len(other.blocks)}. "
                "Give models of one architecture."
            )
        shown = track(batches, "patching layers", n_items=len(batches), is_shown=progress)
        found = [_patch_batch(own, other, batch.placed(run_device)) for batch in shown]
        means = torch.cat(found, dim=1).double().cpu().numpy()  # (1 + layers, n)
    records = torch.cat([batch.records for batch in batches]).numpy()
    ordered: npt.NDArray[Any] = np.empty_like(means)
    ordered[:, records] = means
    layers: dict[str, FloatArray] = dict(zip(own.blocks, ordered[1:], strict=True))
    return PatchReading(ordered[0], layers)


def _patch_batch(target: "CausalParts", source: "CausalParts", batch: "TokenBatch") -> "Tensor":
    """(1 + layers, b) mean log p of the asked tokens: as it is, and with each block's states replaced."""
    import torch

    from ruler.embeddings.heads import answering

    given: dict[str, Tensor] = {}
    own: dict[str, Tensor] = {}

    def keep(kept: "dict[str, Tensor]", pick: "Callable[[Tensor], Tensor]") -> "Callable[[str, Tensor], None]":
        return lambda name, states: kept.update({name: pick(states)})

    def score(final: "Tensor") -> "Tensor":
        asked = final[batch.rows, batch.places]
        return batch.average(
            target.map_logits(asked, lambda logits, rows: score_logits(logits, batch.targets[rows])[:, 0])
        )

    with source.watch(keep(given, lambda states: states[batch.rows, batch.places])):
        source.run_trunk(batch.tokens)
    with target.watch(keep(own, lambda states: states.clone())):
        means = [score(target.run_trunk(batch.tokens))]
    skipped: list[torch.nn.Module] = []
    for name, block in target.blocks.items():
        states = own.pop(name)
        if given[name].shape[1] != states.shape[2]:
            raise InputError(
                f"source must have states of the target's width, {states.shape[2]}; got {given[name].shape[1]}."
            )
        states[batch.rows, batch.places] = given.pop(name).to(states.dtype)
        skipped.append(block)
        with answering(skipped, (states,) if target.gives_tuples else states):
            means.append(score(target.run_trunk(batch.tokens)))
    return torch.stack(means)
