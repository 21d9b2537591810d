"""Optional packages: loaded when first used; an error says how to install a missing one."""

import importlib
from types import ModuleType

from ruler.core.errors import MissingPackageError

_EXTRAS = {
    "bench": ("faiss",),
    "cli": ("rich", "typer"),
    "cluster": ("ray",),
    "data": ("PIL", "pandas", "platformdirs", "pooch", "pyarrow", "sklearn"),
    "huggingface": ("huggingface_hub", "transformers"),
    "lightning": ("lightning",),
    "mlflow": ("mlflow",),
    "report": ("jinja2", "matplotlib", "pydantic", "rfc8785"),
    "sign": ("cryptography",),
    "torch": ("safetensors", "torch"),
    "torchmetrics": ("torchmetrics",),
    "wandb": ("wandb",),
}
"""Extra of this package -> packages that come with it, by the names they are imported by."""


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
        extra = next((extra for extra, packages in _EXTRAS.items() if root in packages), None)
        line = f'pip install "ruler-audit[{extra}]"' if extra else f"pip install {root}"
        raise MissingPackageError(f"{needed_for} needs the package {root!r}. Run: {line}") from error
