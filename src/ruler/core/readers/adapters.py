"""LoRA adapters that PEFT saved -> merged into their base model, from numbers alone and without PEFT."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruler.core.errors import CheckpointError, FileFormatError
from ruler.core.optional import load_optional
from ruler.core.readers.arrays import read_safetensors
from ruler.core.readers.documents import read_json
from ruler.core.readers.safety import reading_safely

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PARTS = re.compile(r"(?P<module>.+)\.lora_(?P<embedding>embedding_)?(?P<part>[AB])(\.weight)?")
_PLAIN = re.compile(r"[\w.]+")
_HARMLESS_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")  # others change the base model too
_REFUSED = ("use_dora", "lora_bias", "layer_replication", "target_parameters", "trainable_token_indices")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    return (folder / CONFIG).is_file() and not (folder / "config.json").is_file()


def find_base(folder: Path, bundle: Path) -> Path:
    """The base model that an adapter names, if it lies within the bundle.

    Args:
        folder: Of the adapter.
        bundle: The folder that everything must lie in; relative names start there.

    Raises:
        FileFormatError: It names none, or one elsewhere: on a hub, say.
    """
    named = read_json(folder / CONFIG).get("base_model_name_or_path")
    with reading_safely(folder / CONFIG):
        place = (bundle / str(named)).resolve() if named else bundle
        is_inside = bool(named) and place.is_relative_to(bundle.resolve()) and (place / "config.json").is_file()
    if not is_inside:
        raise FileFormatError(
            f"{folder} must name a base model within {bundle}; got {str(named)!r:.200}. Models are not fetched: "
            "name the folder of the base model as models.base."
        )
    return place


def merge_adapter(model: Any, folder: Path) -> None:
    """Add a LoRA adapter to the weights of its base model, in place: W + (alpha / r) B A.

    ``use_rslora`` divides by the square root of r. Weights that were trained whole (``modules_to_save``, biases)
    replace those of the model.

    Args:
        model: The base, a torch module.
        folder: As PEFT's ``save_pretrained`` writes it, with weights as ``.safetensors``.
    """
    config = read_json(folder / CONFIG)
    _check_kind(config, folder)
    torch = load_optional("torch", "merging an adapter")
    weights = _read_weights(folder)
    modules = dict(model.named_modules())
    pairs: dict[tuple[str, bool], dict[str, Any]] = {}
    whole = {}
    for name, tensor in weights.items():
        found = _PARTS.fullmatch(name)
        if found is None:
            whole[name] = tensor
        else:
            pairs.setdefault((found["module"], bool(found["embedding"])), {})[found["part"]] = tensor
    parameters = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for name, tensor in whole.items():
            if name not in parameters:
                raise CheckpointError(
                    f"{folder} must fit its base model; got {name!r:.200}, which the model lacks. Merge the adapter "
                    "where you trained it, with merge_and_unload, and save that with save_pretrained."
                )
            _check_shape(tensor.shape, parameters[name], name, folder)
            parameters[name].copy_(tensor)
        for (name, is_embedding), parts in pairs.items():
            weight = getattr(modules.get(name), "weight", None)
            is_pair = set(parts) == {"A", "B"} and all(part.ndim == 2 for part in parts.values())
            if weight is None or not is_pair or parts["B"].shape[1] != len(parts["A"]):
                raise CheckpointError(
                    f"{folder} must fit its base model; got an adapter of {name!r:.200}, which the model or half of "
                    "the adapter lacks. Name the base model that it was trained on."
                )
            # embeddings and GPT-2's linear layers hold (inputs, outputs)
            is_turned = is_embedding or type(modules[name]).__name__ == "Conv1D"
            shape = (len(parts["B"]), parts["A"].shape[1])
            _check_shape(shape[::-1] if is_turned else shape, weight, name, folder)  # a product may be far larger
            delta = _find_scale(config, name, len(parts["A"]), folder) * (parts["B"].float() @ parts["A"].float())
            weight.copy_(weight.float() + (delta.T if is_turned else delta).to(weight.device))


def _check_kind(config: Mapping[str, Any], folder: Path) -> None:
    odd = [key for key in _REFUSED if config.get(key)]
    start = config.get("init_lora_weights", True)
    if start not in _HARMLESS_STARTS:
        odd.append(f"init_lora_weights {start!r:.40}")
    if config.get("peft_type") != "LORA" or odd:
        found = ", ".join(odd) or repr(config.get("peft_type"))
        raise FileFormatError(
            f"{folder} must hold a plain LoRA adapter; got {found:.200}. Merge it where you trained it, with "
            "merge_and_unload, and save that with save_pretrained."
        )


def _read_weights(folder: Path) -> dict[str, Any]:
    """Tensors by name in the base model."""
    path = folder / _WEIGHTS
    if not path.is_file():
        others = sorted(one.name for one in folder.glob("adapter_model.*"))
        raise FileFormatError(
            f"{folder} must hold its weights as {_WEIGHTS}; got {', '.join(others) or 'no weights'}. Load the adapter "
            "where you trust it and save it again with save_pretrained."
        )
    tensors = read_safetensors(path)
    odd = next((name for name in tensors if not name.startswith(_PREFIX)), None)
    unreal = next((name for name, tensor in tensors.items() if not tensor.is_floating_point()), None)
    if odd is not None or unreal is not None or not tensors:
        raise FileFormatError(f"{path} must hold an adapter's weights, as real numbers; got {odd or unreal!r:.200}.")
    # parameters of a layer that has an adapter are one step further down there
    return {name.removeprefix(_PREFIX).replace(".base_layer.", "."): tensor for name, tensor in tensors.items()}


def _find_scale(config: Mapping[str, Any], module: str, rank: int, folder: Path) -> float:
    """Alpha of a module over its rank, or over the root of that."""
    alpha, patterns = config.get("lora_alpha", 8), config.get("alpha_pattern") or {}
    for key, value in patterns.items() if isinstance(patterns, dict) else [("", None)]:
        if not _PLAIN.fullmatch(key):  # PEFT takes regular expressions, which may take forever
            raise FileFormatError(
                f"{folder} must name modules plainly in alpha_pattern; got {key!r:.80}. Write them out."
            )
        if module == key or module.endswith(f".{key}"):
            alpha = value
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha) or rank < 1:
        raise FileFormatError(f"{folder} must scale its adapter by a number; got alpha {alpha!r:.40}, rank {rank}.")
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _check_shape(shape: tuple[int, ...], weight: Any, name: str, folder: Path) -> None:
    if tuple(shape) != tuple(weight.shape):
        raise CheckpointError(
            f"{folder} must fit its base model; got {name} of {tuple(shape)} for weights of {tuple(weight.shape)}. "
            "Name the base model that it was trained on."
        )
