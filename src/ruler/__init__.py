"""RULER verifies machine unlearning in a model's representations."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ruler.core.errors import RulerError as RulerError
    from ruler.core.types import Embeddings as Embeddings
    from ruler.core.types import Neighbors as Neighbors

__version__ = "0.1.0"

_HOME_OF = {
    "Embeddings": "ruler.core.types",
    "Neighbors": "ruler.core.types",
    "RulerError": "ruler.core.errors",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ruler' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
