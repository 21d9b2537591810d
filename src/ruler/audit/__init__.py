"""Somebody's model to a verdict that they can defend: controls, guards, records, report."""

import inspect
import sys
from types import ModuleType
from typing import Any

from ruler.audit.audit import audit, audit_evidence
from ruler.audit.evidence import Evidence
from ruler.audit.findings import Distributions, GuardFinding, MetricFinding, Pairing, Report
from ruler.audit.gather import gather_evidence
from ruler.audit.settings import AuditSettings

__all__ = [
    "AuditSettings",
    "Distributions",
    "Evidence",
    "GuardFinding",
    "MetricFinding",
    "Pairing",
    "Report",
    "audit",
    "audit_evidence",
    "gather_evidence",
]


class _CallableRoom(ModuleType):
    """Python binds ``ruler.audit`` to this room once any of it is imported: so the room answers as the function."""

    __signature__ = inspect.signature(audit)

    def __call__(self, *args: Any, **options: Any) -> Report:
        return audit(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
