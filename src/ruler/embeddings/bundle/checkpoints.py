"""What a configuration names -> models: the user's own functions with checkpoints, or transformers folders."""

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ruler.core.errors import CheckpointError, FileFormatError, InputError, shorten
from ruler.core.optional import load_optional
from ruler.core.readers.adapters import is_adapter, merge_adapter
from ruler.core.readers.arrays import read_safetensors, read_torch
from ruler.core.readers.pretrained import load_pretrained
from ruler.core.text import show_text

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


def load_checkpoint(factory: Callable[[], Any], checkpoint: Path, name: str) -> "torch.nn.Module":
    """The architecture that the factory builds, with the weights of a checkpoint; nothing in that file is executed.

    Args:
        factory: Takes nothing and returns a torch module.
        checkpoint: A ``.safetensors`` file, or a ``.pt`` or ``.pth`` file of tensors: a state dict, or a dict that
            holds it under ``state_dict`` or ``model``.
        name: Which model, for errors.
    """
    nn = load_optional("torch.nn", "auditing a model")
    state = _read_state(checkpoint)
    model = factory()
    if not isinstance(model, nn.Module):
        raise InputError(f"models.factory must return a torch.nn.Module; got {type(model).__name__}.")
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{checkpoint} must hold the weights of the {name} model that models.factory builds; {shorten(error)}"
        ) from error
    found: torch.nn.Module = model
    return found


def load_transformer(
    folder: Path, name: str, *, base: Path | None = None, options: Mapping[str, str] | None = None
) -> "PreTrainedModel":
    """The transformers model in a folder, whole and as it was saved; nothing in the folder is executed.

    Args:
        folder: As ``save_pretrained`` writes it, with weights as ``.safetensors``; or such a folder of a LoRA adapter.
        name: Which model, for errors.
        base: The model that an adapter is merged into.
        options: ``dtype``, ``load_in`` and ``device_map``, as `load_pretrained`.
    """
    if folder.is_file():
        raise FileFormatError(
            f"models.{name} must be a folder that save_pretrained wrote; got the file {folder}. "
            "For a checkpoint, name the function that builds the model, as models.factory."
        )
    is_added = is_adapter(folder)
    if is_added and base is None:
        raise FileFormatError(f"{folder} holds an adapter, so models.base must name its base model; got none.")
    if is_added and options and "load_in" in options:
        raise InputError(
            f"models.load_in must be used with whole models; got the adapter {folder}, which is merged into whole "
            "weights. Leave it out."
        )
    model: PreTrainedModel
    model, missing = load_pretrained(base if is_added and base else folder, **(options or {}))
    if is_added:
        merge_adapter(model, folder)
    if missing:
        raise CheckpointError(
            f"{folder} must hold all weights of the {name} model; {len(missing)} are missing, such as "
            f"{min(missing)}. Save the model again with save_pretrained."
        )
    return model


def find_factory(spec: str, key: str, folder: Path) -> Callable[..., Any]:
    """The function that ``module:function`` names, wrapped so that its errors are told in one line.

    ``module`` is the file ``module.py`` in ``folder``, or else an installed module. That one file is executed, which
    standard error says beforehand; ``sys.path`` stays as it is, so nothing else that lies in the folder is imported.

    Args:
        spec: ``module:function``.
        key: Where it was written, for errors.
        folder: Of the configuration.

    Raises:
        InputError: Not of this form, no such module or function, or code that raises.

    Example:
        >>> find_factory("collections:OrderedDict", "models.factory", Path())()
        OrderedDict()
    """
    module_name, _, function_name = spec.partition(":")
    if not module_name or not function_name.isidentifier():
        raise InputError(f"{key} must be 'module:function'; got {spec!r}. Example: my_project.models:build")
    file = (folder / f"{module_name}.py").resolve()
    is_beside = module_name.isidentifier() and os.path.isfile(file)
    # here, so that no caller can leave it out
    named = show_text(file if is_beside else module_name)
    print(f"ruler: will execute {named}, which {key} names", file=sys.stderr)

    def load() -> ModuleType:
        return _execute(file) if is_beside else importlib.import_module(module_name)

    module = _call(load, f"{key} {spec!r} must name a module to import")
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{key} must name a function of {module_name}; got {function_name!r}, which is not one.")

    def run(*given: Any) -> Any:
        rule = f"{key} {spec!r} must run {f'with {given}' if given else 'without arguments'}"
        return _call(lambda: function(*given), rule)

    return run


def _execute(file: Path) -> ModuleType:
    """The module that this source file is, executed once; compiled files that lie around are not used."""
    name = f"ruler_bundle_{hashlib.sha256(str(file).encode()).hexdigest()[:16]}"  # shadows no other module
    if name in sys.modules:
        return sys.modules[name]
    loader = SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_file_location(name, file, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(loader.source_to_code(loader.get_data(str(file)), str(file)), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _call(theirs: Callable[[], Any], rule: str) -> Any:
    try:
        return theirs()
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError)
        advice = " Other files beside the configuration are not imported: install them as a package." * is_missing
        raise InputError(f"{rule}; got {type(error).__name__}: {shorten(error)}{advice}") from error


def _read_state(path: Path) -> Mapping[str, Any]:
    if path.suffix.lower() == ".safetensors":
        return read_safetensors(path)
    if path.suffix.lower() not in (".pt", ".pth"):
        raise FileFormatError(f"{path} must end in .safetensors, .pt or .pth; got {path.suffix or 'no ending'!r}.")
    content = read_torch(path)
    keys = [key for key in ("state_dict", "model") if isinstance(content, dict) and key in content]
    found = content[keys[0]] if keys else content
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} must hold a state dict; got {type(found).__name__}.")
    return found
