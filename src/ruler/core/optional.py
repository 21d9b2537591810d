"""Optional packages: loaded when first used; an error says how to install a missing one."""

import importlib
from types import ModuleType

from ruler.core.errors import MissingPackageError

_EXTRA_OF = {
    "PIL": "data",
    "cryptography": "sign",
    "faiss": "bench",
    "huggingface_hub": "huggingface",
    "jinja2": "report",
    "lightning": "lightning",
    "matplotlib": "report",
    "mlflow": "mlflow",
    "pandas": "data",
    "platformdirs": "data",
    "pooch": "data",
    "pyarrow": "data",
    "pydantic": "report",
    "ray": "cluster",
    "rfc8785": "report",
    "rich": "cli",
    "safetensors": "torch",
    "sklearn": "data",
    "torch": "torch",
    "torchmetrics": "torchmetrics",
    "transformers": "huggingface",
    "typer": "cli",
    "wandb": "wandb",
}


def load_optional(module: str, needed_for: str) -> ModuleType:
    """Import an optional module, or say exactly how to install it.

    Args:
        module: Dotted name, e.g. ``"safetensors.numpy"``.
        needed_for: What the caller was about to do; ends up in the error.

    Example:
        >>> load_optional("json", "reading a manifest").loads("[1]")
        [1]
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        extra = _EXTRA_OF.get(root)
        line = f'pip install "ruler-audit[{extra}]"' if extra else f"pip install {root}"
        raise MissingPackageError(f"{needed_for} needs the package {root!r}. Run: {line}") from error
