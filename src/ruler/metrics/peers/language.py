"""A causal language model -> all that peers' metrics need of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ruler.core.errors import InputError
from ruler.embeddings.language.generation import generate_greedily
from ruler.embeddings.language.tokens import Precision, patch_layers, read_tokens

if TYPE_CHECKING:
    import torch

_SETS = ("forget", "held_out", "paraphrased", "perturbed", "entities")


def read_language_model(
    model: "torch.nn.Module",
    data: Mapping[str, Mapping[str, Any]],
    *,
    original: "torch.nn.Module | None" = None,
    tokenizer: Any = None,
    max_tokens: int = 128,
    precision: Precision = "float32",
    batch_tokens: int = 16384,
    device: "str | torch.device | None" = None,
) -> dict[str, Any]:
    """What peers' metrics need of one model, by the names in `NEEDS`.

    Args:
        model: A causal language model of transformers.
        data: Encoded records (``input_ids``, ``attention_mask``, ``labels``; see `read_tokens`) of "forget" and, where
            known, "held_out"; "paraphrased" and "perturbed" answers to the forget records' questions; and "entities",
            forget records whose labels count on the entity alone, for patching (else the whole answers).
        original: The model before unlearning: the model's states are put into it (UDS).
        tokenizer: To write answers to the forget records' prompts (ROUGE).
        max_tokens: Of such an answer.
        precision: See `read_tokens`.
        batch_tokens: Tokens per forward pass, padding included.
        device: Where to run; by default where the model is.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> config = GPT2Config(vocab_size=8, n_positions=8, n_embd=4, n_layer=2, n_head=1)
        >>> records = {"input_ids": [[1, 2, 3]], "labels": [[-100, 2, 3]]}
        >>> sorted(read_language_model(GPT2LMHeadModel(config), {"forget": records}))
        ['forget_states', 'forget_tokens']
    """
    unknown = sorted(set(data) - set(_SETS))
    if unknown or "forget" not in data:
        raise InputError(f"data must hold forget, and of others only {', '.join(_SETS[1:])}; got {', '.join(data)}.")
    asked: dict[str, Any] = {"precision": precision, "batch_tokens": batch_tokens, "device": device}
    forget = read_tokens(model, data["forget"], moments=True, lens=True, hidden="mean", **asked)
    given: dict[str, Any] = {"forget_tokens": forget, "forget_states": forget.hidden}
    if "held_out" in data:
        held_out = read_tokens(model, data["held_out"], hidden="mean", **asked)
        given |= {"held_out_tokens": held_out, "held_out_states": held_out.hidden}
    for name in ("paraphrased", "perturbed"):
        if name in data:
            given[f"{name}_tokens"] = read_tokens(model, data[name], **asked)
    if original is not None:
        given["forget_patches"] = patch_layers(original, model, data.get("entities", data["forget"]), **asked)
    if tokenizer is not None:
        answers = generate_greedily(model, data["forget"], max_tokens=max_tokens, **asked)
        given["forget_generations"] = tokenizer.batch_decode(
            [answer.tolist() for answer in answers], skip_special_tokens=True
        )
    return given


def name_reference(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same under the names that metrics know a reference by: ``model`` is "oracle" or "original".

    Example:
        >>> name_reference("oracle", {"forget_tokens": 1})
        {'oracle_forget_tokens': 1}
    """
    if model not in ("oracle", "original"):
        raise InputError(f"model must be 'oracle' or 'original'; got {model!r}.")
    return {f"{model}_{name}": value for name, value in given.items()}
