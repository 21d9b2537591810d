"""The parts of a causal language model, and its records in batches of similar length."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ruler.core.checks import check_number
from ruler.core.errors import InputError, LayerNotFoundError
from ruler.core.types import IndexArray
from ruler.embeddings import heads
from ruler.embeddings.inputs import IGNORED_TOKEN
from ruler.embeddings.running import hooked, run_head, tensors_in
from ruler.embeddings.sources import plan_by_length

_MOST_LOGITS = 1 << 25  # at once, in float32: 128 MB


@dataclass(frozen=True, eq=False)
class CausalParts:
    """A causal language model as trunk, decoder blocks, final norm and vocabulary head.

    Args:
        model: The whole.
        trunk: The part below the head.
        blocks: Its decoder blocks by dotted name, in forward order.
        norm: What the trunk applies to the last block's states; None if nothing.
        output: An answer of the trunk.
        gives_tuples: Whether blocks return tuples, whose first part is the states.
    """

    model: nn.Module
    trunk: nn.Module
    blocks: Mapping[str, nn.Module]
    norm: nn.Module | None
    output: Any
    gives_tuples: bool

    def run_trunk(self, tokens: Tensor) -> Tensor:
        """States (n, t, p) that the head reads, of tokens (n, t). Padding on the right needs no mask."""
        states: Tensor = self.trunk(input_ids=tokens, use_cache=False)[0]
        return states

    def run_head(self, states: Tensor) -> Tensor:
        """Logits (m, n_words) of states (m, p): the whole model runs, and its trunk answers with these states."""
        return run_head(self.model, self.trunk, states, self.output)

    def map_logits(self, states: Tensor, score: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """``score(logits, rows)`` of the float32 logits of states (m, p), some rows at a time, put together again.

        Args:
            states: What the head reads.
            score: Logits (k, n_words), and which of the m rows they are -> (k, ...).
        """
        n_words = int(self.model.config.get_text_config().vocab_size)  # type: ignore[union-attr, operator]
        size = max(1, _MOST_LOGITS // n_words)
        parts = []
        for start in range(0, len(states), size):
            rows = slice(start, start + size)
            parts.append(score(self.run_head(states[rows]).float(), rows))
        return torch.cat(parts)

    @contextmanager
    def watch(self, see: Callable[[str, Tensor], Tensor | None]) -> Iterator[None]:
        """Call ``see`` with every block's name and states (n, t, p) as they leave it; what it returns replaces them."""

        def add_hook(name: str, block: nn.Module) -> Any:
            def hook(_: nn.Module, args: Any, output: Any) -> Any:
                changed = see(name, output if isinstance(output, Tensor) else output[0])
                if changed is None:
                    return None
                return changed if isinstance(output, Tensor) else (changed, *output[1:])

            return block.register_forward_hook(hook)

        with hooked(add_hook(name, block) for name, block in self.blocks.items()):
            yield


def dissect(model: nn.Module, tokens: Tensor) -> CausalParts:
    """Find the parts of a model, by a forward pass on a few tokens (1, t)."""
    if hasattr(model, "get_base_model"):  # of an adapter library: the layers with the adapter in them
        model = model.get_base_model()  # type: ignore[operator]
    if not heads.predicts_next_token(model):
        raise LayerNotFoundError(
            f"model must be a causal language model of transformers; got {type(model).__name__}. "
            "Load it with AutoModelForCausalLM."
        )
    prefix, trunk = heads.find_trunk(model)  # type: ignore[misc]
    listed = next((name for name, one in trunk.named_modules() if isinstance(one, nn.ModuleList)), None)
    if listed is None:
        raise LayerNotFoundError(f"model must have a list of decoder blocks; got {type(model).__name__} without one.")
    blocks = {f"{prefix}.{listed}.{n}": block for n, block in enumerate(trunk.get_submodule(listed))}  # type: ignore[arg-type]
    inside = {module for block in blocks.values() for module in block.modules()}
    trunk = trunk.get_submodule(listed.rpartition(".")[0])  # what holds the blocks: of OPT the head is fed by this part
    ran: list[tuple[nn.Module, Any]] = []
    watched = [*blocks.values(), *(one for one in trunk.modules() if one is not trunk and one not in inside)]

    def note(module: nn.Module, _: Any, output: Any) -> None:
        ran.append((module, output))

    with hooked(one.register_forward_hook(note) for one in watched):
        output = trunk(input_ids=tokens[:1], use_cache=False)
    place = output[0].data_ptr()
    made = (one for one, given in reversed(ran) if any(part.data_ptr() == place for part in tensors_in(given)))
    last = next(made, None)  # what gave the trunk's answer
    norm = None if last in inside else last
    gives_tuples = any(module in inside and isinstance(given, tuple) for module, given in ran)

    return CausalParts(model, trunk, blocks, norm, output, gives_tuples)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Some records of similar length, and which of their tokens are asked for.

    Args:
        records: (b,) their rows in the data.
        tokens: (b, t) cut behind the last asked token.
        rows: (m,) row in the batch of each asked token.
        places: (m,) the place that predicts it, one before its own.
        targets: (m,) the token.
        slots: (m,) its number among the record's asked tokens.
        counts: (b,) asked tokens of each record.
        n_slots: The most of them.
    """

    records: Tensor
    tokens: Tensor
    rows: Tensor
    places: Tensor
    targets: Tensor
    slots: Tensor
    counts: Tensor
    n_slots: int

    def placed(self, device: torch.device) -> "TokenBatch":
        """The same batch on a device."""
        parts: dict[str, Any] = {name: part.to(device) for name, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **parts)

    def average(self, values: Tensor) -> Tensor:
        """Means (b, ...) over each record's asked tokens of values (m, ...); the same bits every time."""
        spread = values.new_zeros((len(self.records), self.n_slots, *values.shape[1:]), dtype=torch.float32)
        spread[self.rows, self.slots] = values.float()
        return spread.sum(dim=1) / self.counts.view(-1, *[1] * (values.ndim - 1))

    def take_last(self, values: Tensor) -> Tensor:
        """(b, ...) of values (m, ...), those of each record's last asked token."""
        return values[self.counts.cumsum(dim=0) - 1].float()


def plan_batches(data: Mapping[str, Any], batch_tokens: int, *, extra: int = 0) -> list[TokenBatch]:
    """Batches of at most so many tokens, padding included, on the host; longest records first.

    Args:
        data: ``input_ids``, ``labels`` and, if there, ``attention_mask``, each (n, t) and padded on the right. Labels
            are -100 except on the tokens that are asked for.
        batch_tokens: A longer record has a batch of its own.
        extra: Tokens per record that are to come.
    """
    check_number(batch_tokens, "batch_tokens", minimum=1, is_whole=True)
    tokens, labels = (_read_part(data, name) for name in ("input_ids", "labels"))
    if labels.shape != tokens.shape:
        raise InputError(f"labels must have the shape of input_ids, {tuple(tokens.shape)}; got {tuple(labels.shape)}.")
    if data.get("attention_mask") is not None:
        mask = _read_part(data, "attention_mask") != 0
        if mask.shape != tokens.shape or bool((mask[:, 1:] & ~mask[:, :-1]).any()):
            raise InputError("attention_mask must show padding on the right alone; got other. Pad on the right.")
        labels = labels.masked_fill(~mask, IGNORED_TOKEN)
    is_asked = labels != IGNORED_TOKEN
    is_asked[:, 0] = False  # nothing stands before it
    bare = (~is_asked.any(dim=1)).nonzero()[:, 0]
    if len(bare):
        raise InputError(
            f"labels must ask for at least one token per record; got {len(bare)} records without, the first is row "
            f"{int(bare[0])}. Drop these records."
        )
    lengths = (is_asked * torch.arange(tokens.shape[1])).amax(dim=1) + 1
    blocks = plan_by_length(lengths.numpy() + extra, batch_tokens)
    return [_cut_batch(tokens, labels, is_asked, rows, lengths) for rows in blocks]


def _read_part(data: Mapping[str, Any], name: str) -> Tensor:
    if name not in data:
        raise InputError(f"data must hold {name}; got {', '.join(map(str, data)) or 'nothing'}.")
    value = torch.as_tensor(data[name] if isinstance(data[name], Tensor) else np.asarray(data[name])).detach().cpu()
    if value.ndim != 2 or value.is_floating_point() or not value.numel():
        raise InputError(f"{name} must be whole numbers (n, t); got {value.dtype} of shape {tuple(value.shape)}.")
    return value.long()


def _cut_batch(tokens: Tensor, labels: Tensor, is_asked: Tensor, records: IndexArray, lengths: Tensor) -> TokenBatch:
    chosen = torch.from_numpy(records)
    longest = int(lengths[chosen].max())
    asked = is_asked[chosen, :longest]
    rows, own = asked.nonzero(as_tuple=True)
    slots, counts = asked.cumsum(dim=1)[rows, own] - 1, asked.sum(dim=1)
    targets = labels[chosen][rows, own]
    return TokenBatch(chosen, tokens[chosen, :longest], rows, own - 1, targets, slots, counts, int(counts.max()))
