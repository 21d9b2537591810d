"""Somebody's model to a verdict that they can defend: controls, guards, records, report."""

from ruler.audit.evidence import Evidence
from ruler.audit.findings import Distributions, GuardFinding, MetricFinding, Pairing, Report
from ruler.audit.settings import AuditSettings

__all__ = ["AuditSettings", "Distributions", "Evidence", "GuardFinding", "MetricFinding", "Pairing", "Report"]
