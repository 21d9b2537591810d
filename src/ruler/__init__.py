"""RULER verifies machine unlearning in a model's representations."""

import importlib
from typing import TYPE_CHECKING, Any

from ruler.core import __version__ as __version__

if TYPE_CHECKING:
    from ruler.auditing.audit import audit as audit
    from ruler.auditing.findings import Report as Report
    from ruler.auditing.models import audit_models as audit_models
    from ruler.auditing.report.changes import compare_reports as compare_reports
    from ruler.auditing.settings import AuditSettings as AuditSettings
    from ruler.core.errors import RulerError as RulerError
    from ruler.core.types import Embeddings as Embeddings
    from ruler.core.types import Neighbors as Neighbors
    from ruler.embeddings import embed as embed
    from ruler.metrics import all_metrics as all_metrics
    from ruler.metrics import cosine_similarity as cosine_similarity
    from ruler.metrics import m1 as m1
    from ruler.metrics import m2 as m2
    from ruler.metrics import m3 as m3
    from ruler.metrics import m4 as m4
    from ruler.neighbors import find_neighbors as find_neighbors
    from ruler.paper.compare import Comparison as Comparison
    from ruler.paper.compare import compare as compare
    from ruler.unlearning import unlearn as unlearn

_HOME_OF = {
    "AuditSettings": "ruler.auditing.settings",
    "Comparison": "ruler.paper.compare",
    "Embeddings": "ruler.core.types",
    "Neighbors": "ruler.core.types",
    "Report": "ruler.auditing.findings",
    "RulerError": "ruler.core.errors",
    "all_metrics": "ruler.metrics",
    "audit": "ruler.auditing.audit",
    "audit_models": "ruler.auditing.models",
    "compare": "ruler.paper.compare",
    "compare_reports": "ruler.auditing.report.changes",
    "cosine_similarity": "ruler.metrics",
    "embed": "ruler.embeddings",
    "find_neighbors": "ruler.neighbors",
    "m1": "ruler.metrics",
    "m2": "ruler.metrics",
    "m3": "ruler.metrics",
    "m4": "ruler.metrics",
    "unlearn": "ruler.unlearning",
}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'ruler' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
