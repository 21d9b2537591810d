"""Where in a model the representation is read, a named layer or the input of the task head, and how it is pooled."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ruler.core.errors import InputError, LayerNotFoundError
from ruler.core.optional import load_optional
from ruler.embeddings.running import hooked, main_tensor, tensors_in

INPUT_MARK = ":input"
HEAD_NAMES = ("fc", "classifier", "head", "score", "classification_head", "qa_outputs", "lm_head", "cls")
_TOKEN_HEADS = ("lm_head", "cls")
_LAST_TOKEN_HEADS = ("lm_head", "score")

Pooling = Literal["completion", "last", "span"]
"""What of a sequence becomes one vector: a mean over places that predict a counted token, the last token, or a mean
over places that predict a token of the marked span."""

WORDS: dict[Pooling, str] = {
    "completion": "mean over the positions that predict a completion token",
    "span": "mean over the positions that predict a token of the marked span",
}
"""What the report says of each."""

BLIND_TO_PADDING = {
    *("albert", "bert", "camembert", "deberta", "distilbert", "electra", "ernie", "modernbert", "mpnet", "rembert"),
    *("roberta", "xlm-roberta", "xlm-roberta-xl"),
}
"""Kinds of encoders, by ``config.model_type``, in which attention alone passes from token to token, under a mask."""


@dataclass(frozen=True, eq=False)
class ReadPoint:
    """A place in a model where vectors are read.

    Args:
        module: The layer.
        name: Its dotted name.
        reads_input: Read what enters the layer rather than what leaves it.
        takes_last_token: Of a sequence, the last token that is no padding; else the first.
    """

    module: nn.Module
    name: str
    reads_input: bool
    takes_last_token: bool

    @property
    def label(self) -> str:
        """The text that ``find_layer`` turns into this point again."""
        return self.name + INPUT_MARK * self.reads_input


@dataclass(frozen=True, eq=False)
class _Call:
    module: nn.Module
    n_input_dims: int
    n_outputs: int


def find_layer(model: nn.Module, layer: str, *, is_causal: bool = False) -> ReadPoint:
    """The point at a layer that the caller names."""
    name = layer.removesuffix(INPUT_MARK)
    modules = dict(model.named_modules(remove_duplicate=False))
    if name not in modules:
        known = [known for known in modules if known]
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"It begins {', '.join(known[:5])}."
        raise LayerNotFoundError(
            f"layer must be one of the model's {len(known)} modules; got {layer!r}. {hint} "
            "See dict(model.named_modules())."
        )
    is_last = is_causal or name.rpartition(".")[2] in _LAST_TOKEN_HEADS or isinstance(modules[name], nn.RNNBase)
    return ReadPoint(modules[name], name, layer != name, is_last)


def find_head_input(model: nn.Module, run: Callable[[], Any], *, is_causal: bool = False) -> ReadPoint:
    """The point at the input of the task head, found by watching one forward pass.

    Args:
        model: The model that ``run`` runs.
        run: Performs the pass and returns its output.
        is_causal: Whether later tokens know the earlier ones and not the reverse.
    """
    children = list(model.named_children())
    while len(children) == 1 and children[0][0] not in HEAD_NAMES:  # a wrapper around the real model
        children = list(children[0][1].named_children())
    heads = {child: name for name, child in children if name in HEAD_NAMES}
    calls: list[_Call] = []

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        n_dims = next((tensor.ndim for tensor in tensors_in((args, kwargs))), 0)
        calls.append(_Call(module, n_dims, sum(tensor.numel() for tensor in tensors_in(output))))

    watched = [module for module in model.modules() if isinstance(module, nn.Linear) or module in heads]
    with hooked(module.register_forward_hook(note, with_kwargs=True) for module in watched):
        output = run()
    head = next((call for call in reversed(calls) if call.module in heads), None)
    if head is None:
        known = ", ".join(HEAD_NAMES)
        if not calls:
            raise LayerNotFoundError(
                f"model must have a task head, a child named {known}, or a Linear that runs; got neither. "
                "Name the layer to read."
            )
        # a Linear deep inside, such as a gate, is no task head: its output has another size than the model's
        if calls[-1].n_outputs not in {tensor.numel() for tensor in tensors_in(output)}:
            raise LayerNotFoundError(
                "model must end in its task head; got a last Linear that does not make the model's output, and "
                f"no child named {known}. Name the layer to read."
            )
        chosen, is_last = calls[-1], False
    else:
        name = heads[head.module]
        inside = set(head.module.modules())
        linears = [call for call in calls if call.module in inside and isinstance(call.module, nn.Linear)]
        is_token_head = name in _TOKEN_HEADS and head.n_input_dims == 3
        chosen = head if is_token_head or not linears else linears[-1]
        is_last = name in _LAST_TOKEN_HEADS
    names = {module: name for name, module in model.named_modules()}
    return ReadPoint(chosen.module, names[chosen.module], True, is_causal or is_last)


def find_blocks(model: nn.Module, main: ReadPoint, run: Callable[[], Any], n_rows: int) -> list[ReadPoint]:
    """The blocks that a record passes on its way to the main point, in forward order, with the main point last.

    These are the modules beside the main point's ancestors: the children of a ``Sequential``, the stages of a ResNet,
    and in place of a list of blocks, as transformers have, the blocks. Only those that run once and give one vector,
    sequence or feature map per record count.
    """
    names = {module: name for name, module in model.named_modules()}
    if main.reads_input:
        path = main.name.split(".")
        ancestors = [model.get_submodule(".".join(path[:depth])) for depth in range(len(path))]
        chain = {*ancestors, main.module}
        beside = [child for ancestor in ancestors for child in ancestor.children() if child not in chain]
        candidates = [block for module in beside for block in (*_listed_blocks(module), module)]
    else:
        candidates = _listed_blocks(main.module) or list(main.module.children())
    while len(candidates) < 2 and any(list(one.children()) for one in candidates):  # a wrapper around the real blocks
        candidates = [child for one in candidates for child in (list(one.children()) or [one])]
    ran: list[nn.Module | None] = []  # None: the main point

    def note(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        tensor = main_tensor(output)
        if tensor is None or tensor.ndim < 2 or len(tensor) != n_rows:
            ran.extend([module, module])  # twice, so that it does not count
        else:
            ran.append(module)

    handles = [module.register_forward_hook(note) for module in dict.fromkeys(candidates)]
    if main.reads_input:
        handles.append(main.module.register_forward_pre_hook(lambda *_: ran.append(None)))
    with hooked(handles):
        run()
    before = ran[: ran.index(None)] if None in ran else ran
    blocks = [module for module in before if module is not None and ran.count(module) == 1 and module in names]
    return [*(find_layer(model, names[module], is_causal=main.takes_last_token) for module in blocks), main]


def _listed_blocks(module: nn.Module) -> list[nn.Module]:
    """The entries of the outermost lists of modules inside a module; empty if there are none."""
    level = [module]
    while level:
        lists = [one for one in level if isinstance(one, nn.ModuleList) and len(one) > 1]
        if lists:
            return [block for one in lists for block in one]
        level = [child for one in level for child in one.children()]
    return []


def reads_texts_alike(model: nn.Module) -> bool:
    """Whether this is an encoder of transformers' own whose answer for a text does not depend on padding."""
    kind = getattr(getattr(model, "config", None), "model_type", None)
    return type(model).__module__.startswith("transformers.") and kind in BLIND_TO_PADDING


def is_huggingface(model: nn.Module) -> bool:
    """Whether this is a transformers model, also one wrapped by an adapter library."""
    return hasattr(model, "base_model_prefix") and hasattr(model, "config")


def find_trunk(model: Any) -> tuple[str, nn.Module] | None:
    """The part whose last hidden state is the representation, with its name; None if a head must be found.

    That is the base model under a vocabulary head, and the model itself where it has no head.
    """
    trunk = getattr(model, model.base_model_prefix, None)
    if model.get_output_embeddings() is not None:
        if trunk is None:
            raise LayerNotFoundError(f"layer must be named for {type(model).__name__}; its trunk was not found.")
        return model.base_model_prefix, trunk
    has_head = any(name in HEAD_NAMES for name, _ in model.named_children())
    return None if trunk is not None or has_head else ("", model)


def is_encoder_decoder(model: Any) -> bool:
    """Whether an encoder reads a text and a decoder with a vocabulary head writes another, as in T5 and BART."""
    is_of_two = bool(getattr(model.config, "is_encoder_decoder", False))
    return is_of_two and model.get_output_embeddings() is not None


def find_decoder(model: Any) -> ReadPoint:
    """The point behind the decoder of a model that has an encoder too."""
    decoder = model.get_decoder()
    names = {module: name for name, module in model.named_modules()}
    return ReadPoint(decoder, names[decoder], reads_input=False, takes_last_token=True)


def find_vocabulary_head(model: Any) -> nn.Module | None:
    """The module that turns hidden states into logits over the vocabulary."""
    head = model.get_output_embeddings()
    return head if isinstance(head, nn.Module) else None


def is_causal(model: Any) -> bool:
    """Whether a token knows only those before it, so that the last token stands for the sequence."""
    if getattr(model.config, "is_decoder", False) or model.can_generate():
        return True
    auto = load_optional("transformers.models.auto.modeling_auto", "embedding a Hugging Face model")
    kind = model.config.model_type
    # encoders such as BERT can be set up as decoders, so they are in the first table too
    return kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def predicts_next_token(model: Any) -> bool:
    """Whether labels, which are token ids, count one place further on, as in causal language models."""
    if not is_huggingface(model) or model.get_output_embeddings() is None:
        return False
    return is_causal(model) and not getattr(model.config, "is_encoder_decoder", False)


def padding_of(model: Any) -> Mapping[str, int]:
    """What fills up short sequences, by parameter of forward; 0 for parameters that are not named."""
    pad = getattr(model.config, "pad_token_id", None)
    return {} if pad is None else {"input_ids": int(pad)}


def average_places(tensor: Tensor, point: ReadPoint, chosen: Tensor) -> Tensor:
    """The mean over the chosen places of each record, in at least single precision."""
    _check_cover(chosen, tensor, point, "labels")
    weights = chosen.to(tensor.device, torch.promote_types(tensor.dtype, torch.float32))
    # not a product with the weights: what padding holds may be NaN
    kept = tensor.to(weights.dtype).masked_fill(weights[:, :, None] == 0, 0)
    return kept.sum(dim=1) / weights.sum(dim=1, keepdim=True)


def pool_tokens(tensor: Tensor, point: ReadPoint, is_padded: Tensor | None) -> tuple[Tensor, str]:
    """One vector per record, and how it came about."""
    if tensor.ndim > 3:
        return tensor.mean(dim=tuple(range(2, tensor.ndim))), "mean over all positions"
    if tensor.ndim < 3:
        return tensor, "one vector per record as it is"
    if not point.takes_last_token:
        return tensor[:, 0], "first token"
    if is_padded is None or tensor.shape[1] == 1:
        return tensor[:, -1], "last token"
    _check_cover(is_padded, tensor, point, "attention_mask")
    positions = torch.arange(tensor.shape[1], device=tensor.device)
    last = (positions * ~is_padded.to(tensor.device)).argmax(dim=1)  # (n,)
    return tensor[torch.arange(len(tensor), device=tensor.device), last], "last token that is no padding"


def _check_cover(marked: Tensor, tensor: Tensor, point: ReadPoint, name: str) -> None:
    if marked.shape != tensor.shape[:2]:
        raise InputError(
            f"{name} must cover the {tuple(tensor.shape[:2])} tokens that reach layer {point.label!r}; got shape "
            f"{tuple(marked.shape)}. Name another layer."
        )
