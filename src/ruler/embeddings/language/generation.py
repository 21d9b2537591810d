"""Greedy answers of a causal language model to the prompts of encoded records."""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import IndexArray
from ruler.embeddings.language.tokens import Precision, prepared

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ruler.embeddings.language.causal import CausalParts, TokenBatch

_STEPS_PER_LOOK = 16  # asking whether all are done makes the device wait


def generate_greedily(
    model: "torch.nn.Module",
    data: Mapping[str, Any],
    *,
    max_tokens: int = 128,
    stop: int | Sequence[int] | None = None,
    precision: Precision = "float32",
    batch_tokens: int = 16384,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> list[IndexArray]:
    """What does the model write to each prompt if it always takes the likeliest token?

    Prompts are the tokens before the first label of a record. They are padded on the left inside a batch, and past
    tokens are not computed again. Settings of generation that came with the model are not used.

    Args:
        model: A causal language model of transformers.
        data: ``input_ids``, ``labels`` and, if there, ``attention_mask``, each (n, t), padded on the right. Labels are
            -100 except on completion tokens.
        max_tokens: Where an answer ends at the latest.
        stop: Tokens that end an answer and are left out; by default the model's end of sequence.
        precision: "bfloat16" computes under autocast; "float32" as the weights are stored, without TF32.
        batch_tokens: Of prompts, padding included, and answers together, per batch.
        device: Where to run; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        The tokens of each answer, in the order of the data; ``tokenizer.batch_decode`` makes them texts.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=2, n_head=1, eos_token_id=None)
        >>> model, data = GPT2LMHeadModel(config), {"input_ids": [[1, 2, 3]], "labels": [[-100, -100, 3]]}
        >>> [len(answer) for answer in generate_greedily(model, data, max_tokens=4)]
        [4]
    """
    torch = load_optional("torch", "generating answers")
    from ruler.embeddings.language.causal import plan_batches

    check_number(max_tokens, "max_tokens", minimum=1, is_whole=True)
    batches = plan_batches(data, batch_tokens, extra=max_tokens)
    with prepared(model, batches, precision=precision, device=device) as (parts, run_device):
        ends = _find_stop(parts.model) if stop is None else [stop] if isinstance(stop, int) else list(stop)
        final = torch.tensor(ends, dtype=torch.int64, device=run_device)
        shown = track(batches, "generating answers", n_items=len(batches), is_shown=progress)
        found = [_answer_batch(parts, batch.placed(run_device), max_tokens, final) for batch in shown]
        written = [one.cpu().numpy() for one in found]
    answers: list[IndexArray] = [np.empty(0, dtype=np.int64)] * sum(len(batch.records) for batch in batches)
    for batch, rows in zip(batches, written, strict=True):
        for record, row in zip(batch.records.tolist(), rows, strict=True):
            ended = np.flatnonzero(np.isin(row, ends))
            answers[record] = row[: ended[0]] if len(ended) else row
    return answers


def _find_stop(model: Any) -> list[int]:
    """The end-of-sequence tokens that the model names."""
    for config in (getattr(model, "generation_config", None), model.config.get_text_config()):
        found = getattr(config, "eos_token_id", None)
        if found is not None:
            return [int(found)] if isinstance(found, int) else [int(one) for one in found]
    return []


def _answer_batch(parts: "CausalParts", batch: "TokenBatch", max_tokens: int, stop: "Tensor") -> "Tensor":
    """(b, at most max_tokens) tokens behind each prompt; what stands behind a stop means nothing."""
    import torch

    n_prompt = torch.full_like(batch.records, batch.tokens.shape[1])
    n_prompt.scatter_reduce_(0, batch.rows, batch.places + 1, "amin")
    longest = int(n_prompt.max())
    places = torch.arange(longest, device=stop.device) - (longest - n_prompt)[:, None]  # below 0: padding
    tokens = batch.tokens.gather(1, places.clamp(min=0))
    is_real = torch.cat([places >= 0, torch.ones(len(tokens), max_tokens, device=stop.device) == 1], dim=1)
    takes_places = "position_ids" in inspect.signature(parts.trunk.forward).parameters
    is_done = torch.zeros_like(n_prompt, dtype=torch.bool)
    written, past = [], None
    for step in range(max_tokens):
        where = places.clamp(min=0) if step == 0 else (n_prompt + step - 1)[:, None]
        output = parts.trunk(
            input_ids=tokens,
            attention_mask=is_real[:, : longest + step].long(),
            past_key_values=past,
            use_cache=True,
            **({"position_ids": where} if takes_places else {}),
        )
        past = getattr(output, "past_key_values", None)
        if past is None:
            raise InputError(
                f"model must hand back past keys and values; got {type(parts.model).__name__}, which does not. "
                "Write the answers with its own generate."
            )
        tokens = parts.run_head(output[0][:, -1]).argmax(dim=1, keepdim=True)
        written.append(tokens)
        is_done |= torch.isin(tokens[:, 0], stop)
        if (step + 1) % _STEPS_PER_LOOK == 0 and bool(is_done.all()):
            break
    return torch.cat(written, dim=1)
