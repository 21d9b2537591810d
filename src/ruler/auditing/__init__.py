"""Somebody's model to a verdict that they can defend: controls, guards, records, report."""

from ruler.auditing.audit import audit, audit_evidence
from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Distributions, GuardFinding, MetricFinding, Pairing, Report
from ruler.auditing.gather import gather_evidence
from ruler.auditing.settings import AuditSettings

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
