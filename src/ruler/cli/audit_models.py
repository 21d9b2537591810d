"""What a configuration names -> models: the user's own functions, with the weights of checkpoints."""

import importlib
import pickle
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.cli.audit_records import read_safely, shorten
from ruler.core.errors import CheckpointError, FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.embeddings.formats.entries import check_unfolded_size

if TYPE_CHECKING:
    import torch


def load_model(factory: Callable[[], Any], checkpoint: Path, name: str) -> "torch.nn.Module":
    """The architecture that the factory builds, with the weights of a checkpoint; nothing in that file is executed.

    Args:
        factory: Takes nothing and returns a torch module.
        checkpoint: A ``.safetensors`` file, or a ``.pt`` or ``.pth`` file of tensors: a state dict, or a dict that
            holds it under ``state_dict`` or ``model``.
        name: Which model, for errors.

    Raises:
        InputError: The factory gives something else.
        FileFormatError: A file that cannot be read safely.
        CheckpointError: Weights that do not fit the architecture.
    """
    nn = load_optional("torch.nn", "auditing a model")
    state = read_safely(_load_state, checkpoint)
    built = factory()
    if not isinstance(built, nn.Module):
        raise InputError(f"models.factory must return a torch.nn.Module; got {type(built).__name__}.")
    model: torch.nn.Module = built
    try:
        model.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{checkpoint} must hold the weights of the {name} model that models.factory builds; {shorten(error)}"
        ) from error
    return model


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let modules that lie in ``folder`` be imported, for as long as the block runs.

    Example:
        >>> with importable(Path("my-project")):
        ...     sys.path[0].endswith("my-project")
        True
    """
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def find_factory(spec: str, key: str) -> Callable[[], Any]:
    """The function that ``module:function`` names, wrapped so that what goes wrong inside it is said in a line.

    Importing a module runs its code: only the modules that a configuration names are imported.

    Args:
        spec: ``module:function``.
        key: Where it was written, for errors.

    Raises:
        InputError: Not of this form, no such module or function, or code that raises.

    Example:
        >>> find_factory("collections:OrderedDict", "models.factory")()
        OrderedDict()
    """
    module_name, _, function_name = spec.partition(":")
    if not module_name or not function_name.isidentifier():
        raise InputError(f"{key} must be 'module:function'; got {spec!r}. Example: my_project.models:build")
    module = _run_theirs(lambda: importlib.import_module(module_name), f"{key} {spec!r} must name a module to import")
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"{key} must name a function of {module_name}; got {function_name!r}, which is not one.")
    return lambda: _run_theirs(function, f"{key} {spec!r} must run without arguments")


def _run_theirs(call: Callable[[], Any], rule: str) -> Any:
    try:
        return call()
    except Exception as error:
        raise InputError(f"{rule}; got {type(error).__name__}: {shorten(error)}") from error


def _load_state(path: Path) -> Mapping[str, Any]:
    if path.suffix.lower() == ".safetensors":
        state: Mapping[str, Any] = load_optional("safetensors.torch", "reading .safetensors").load_file(str(path))
        return state
    if path.suffix.lower() not in (".pt", ".pth"):
        raise FileFormatError(f"{path} must end in .safetensors, .pt or .pth; got {path.suffix or 'no ending'!r}.")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_unfolded_size(sum(info.file_size for info in archive.infolist()), path)
    try:
        content = load_optional("torch", "reading .pt").load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise FileFormatError(
            f"{path} must be a file of tensors only; got one that is broken or needs pickled code, which is not run. "
            "Save the state dict, with torch.save(model.state_dict(), path)."
        ) from None
    found = next(
        (content[key] for key in ("state_dict", "model") if isinstance(content, dict) and key in content), content
    )
    if not isinstance(found, dict):
        raise FileFormatError(f"{path} must hold a state dict; got {type(found).__name__}.")
    return found
