"""A causal language model and encoded records -> what it says of every completion token, as it is or patched."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.types import FloatArray, PatchReading, TokenReading

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ruler.embeddings.language.causal import CausalParts, TokenBatch


Precision = Literal["float32", "bfloat16"]
HEAD_INPUT = "head"
"""The layer name of the states that the vocabulary head reads: behind the final norm."""
_TOLERATED_LENS = 0.05  # nats, mean over tokens; bfloat16 rounds states that are stored and read again


def read_tokens(
    model: "torch.nn.Module",
    data: Mapping[str, Any],
    *,
    moments: bool = False,
    lens: bool = False,
    hidden: Literal["mean", "last"] | None = None,
    precision: Precision = "float32",
    batch_tokens: int = 16384,
    device: "str | torch.device | None" = None,
    progress: bool = False,
) -> TokenReading:
    """How likely is every completion token, given all true tokens before it?

    One forward pass per batch of records of similar length. Logits exist at the asked places alone, and for some of
    them at a time; numbers leave the device once, at the end. The model runs in eval mode and is left as it was.

    Args:
        model: A causal language model of transformers.
        data: ``input_ids``, ``labels`` and, if there, ``attention_mask``, each (n, t), padded on the right. Labels are
            -100 except on completion tokens. Nothing stands before the first token of a record, so it is never asked.
        moments: Also read mean and standard deviation of log p over each place's distribution.
        lens: Also read each block's states through the final norm and head.
        hidden: Also keep the states that leave each block, and those that the head reads ("head"): their mean over the
            places that predict a completion token, or the last such place.
        precision: "bfloat16" computes under autocast; "float32" as the weights are stored, without TF32.
        batch_tokens: Tokens per forward pass, padding included.
        device: Where to run; by default where the model is.
        progress: Show a progress bar, if standard error is a terminal.

    Returns:
        One row per record, in the order of the data, float64 (``hidden`` float32).

    Raises:
        InputError: Data that does not fit together, is padded on the left, or has a record without completion.
        LayerNotFoundError: Not a causal language model, or without decoder blocks.
        MissingPackageError: torch is not installed.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=2, n_head=1))
        >>> tokens = [[1, 2, 3, 4], [5, 6, 7, 0]]
        >>> reading = read_tokens(model, {"input_ids": tokens, "labels": [[-100, -100, 3, 4], [-100, 6, 7, 0]]})
        >>> reading.log_probs.shape, reading.lengths.tolist()
        ((2, 3), [2, 3])
    """
    torch = load_optional("torch", "reading a language model")
    from ruler.embeddings.language.causal import plan_batches

    batches = plan_batches(data, batch_tokens)
    with prepared(model, batches, precision=precision, device=device) as (parts, run_device):
        found = []
        for batch in track(batches, "reading tokens", n_items=len(batches), is_shown=progress):
            placed = batch.placed(run_device)
            found.append(_read_batch(parts, placed, moments=moments, lens=lens, hidden=hidden))
        names = [*parts.blocks, HEAD_INPUT]
        scores = torch.cat([one for one, _, _ in found], dim=1).double().cpu().numpy()  # (kinds, all tokens)
        lenses = torch.cat([one for _, one, _ in found], dim=1).double().cpu().numpy() if lens else []
        states = [torch.cat(parts).cpu().numpy() for parts in zip(*(one for _, _, one in found), strict=True)]
    rows = torch.cat([batch.records[batch.rows] for batch in batches]).numpy()
    slots = torch.cat([batch.slots for batch in batches]).numpy()
    records = torch.cat([batch.records for batch in batches]).numpy()

    def spread(values: Any) -> npt.NDArray[np.float64]:
        table = np.full((len(records), int(slots.max()) + 1), np.nan)
        table[rows, slots] = values
        return table

    layers = {name: np.empty_like(one) for name, one in zip(names, states, strict=False)}
    for name, one in zip(layers, states, strict=True):
        layers[name][records] = one
    return TokenReading(
        spread(scores[0]),
        spread(scores[1]) == 1,
        means=spread(scores[2]) if moments else None,
        deviations=spread(scores[3]) if moments else None,
        lens={name: spread(one) for name, one in zip(names, lenses, strict=False)},
        hidden=layers,
    )


@contextmanager
def prepared(
    model: "torch.nn.Module",
    batches: "list[TokenBatch]",
    *,
    precision: Precision,
    device: "str | torch.device | None",
) -> "Iterator[tuple[CausalParts, torch.device]]":
    """The parts of a model in eval mode, on a device, in a precision; the model is afterwards as it was."""
    import torch

    from ruler.embeddings.language.causal import dissect
    from ruler.embeddings.running import bare_module, undisturbed

    if precision not in ("float32", "bfloat16"):
        raise InputError(f"precision must be 'float32' or 'bfloat16'; got {precision!r}.")
    module = bare_module(model)
    with (
        undisturbed(module, device) as target,
        torch.autocast(target.type, torch.bfloat16, enabled=precision == "bfloat16"),
    ):
        yield dissect(module, batches[0].tokens[:1, :2].to(target)), target


def _read_batch(
    parts: "CausalParts", batch: "TokenBatch", *, moments: bool, lens: bool, hidden: str | None
) -> "tuple[Tensor, Tensor | None, list[Tensor]]":
    """Scores (kinds, m), log-probabilities (layers, m) and vectors (b, p) of each layer."""
    import torch

    lenses: list[Tensor] = []
    vectors: list[Tensor] = []

    def score(logits: "Tensor", rows: slice) -> "Tensor":
        return score_logits(logits, batch.targets[rows], moments=moments)

    def keep(asked: "Tensor") -> None:
        if hidden == "mean":
            vectors.append(batch.average(asked))
        elif hidden == "last":
            vectors.append(batch.take_last(asked))

    def see(_: str, states: "Tensor") -> None:
        asked = states[batch.rows, batch.places]  # (m, p)
        keep(asked)
        if lens:
            final = asked if parts.norm is None else parts.norm(asked)
            lenses.append(parts.map_logits(final, lambda logits, rows: score_logits(logits, batch.targets[rows])[:, 0]))

    with parts.watch(see) if lens or hidden else nullcontext():
        final = parts.run_trunk(batch.tokens)
    asked = final[batch.rows, batch.places]
    keep(asked)
    scores = parts.map_logits(asked, score)
    if lens and float((lenses[-1] - scores[:, 0]).abs().mean()) > _TOLERATED_LENS:
        raise InputError(
            f"model must read its last block through one norm and its head; {type(parts.model).__name__} does not, so "
            "there is no logit lens. Read it without lens."
        )
    return scores.T, torch.stack(lenses) if lens else None, vectors


def score_logits(logits: "Tensor", targets: "Tensor", *, moments: bool = False) -> "Tensor":
    """(m, 2 or 4): log p of the target, whether it is the likeliest; mean and deviation of log p over all words."""
    import torch

    log_probs = torch.log_softmax(logits, dim=1)
    right = log_probs.gather(1, targets[:, None])[:, 0]
    kinds = [right, (logits.argmax(dim=1) == targets).float()]
    if moments:
        probs = log_probs.exp()
        known = torch.where(probs > 0, log_probs, 0.0)  # 0 log 0 is 0
        mean = (probs * known).sum(dim=1)
        spread = (probs * (known - mean[:, None]).square()).sum(dim=1).sqrt()  # centred first: no difference of squares
        kinds += [mean, spread]
    return torch.stack(kinds, dim=1)


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

    from ruler.embeddings.running import answering

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
