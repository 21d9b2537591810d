"""Doubts about the evidence itself: a table of guards, each silent on sound evidence."""

from collections.abc import Callable, Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding
from ruler.auditing.guards.duplicates import check_forget_copies, check_held_out_copies
from ruler.auditing.guards.exchangeability import check_exchangeability
from ruler.auditing.guards.models import check_collapse, check_pairing, check_sameness
from ruler.auditing.guards.records import (
    check_columns,
    check_groups,
    check_order,
    check_repeats,
    check_sharing,
    check_swapped,
)
from ruler.auditing.guards.size import check_attainable

Guard = Callable[[Evidence], Iterator[GuardFinding]]

GUARDS: tuple[Guard, ...] = (
    check_order,
    check_sharing,
    check_repeats,
    check_columns,
    check_groups,
    check_sameness,
    check_pairing,
    check_held_out_copies,
    check_forget_copies,
    check_collapse,
    check_swapped,
    check_exchangeability,
    check_attainable,
)
_RANK = {"fail": 0, "warn": 1, "note": 2}


def run_guards(evidence: Evidence) -> list[GuardFinding]:
    """What speaks against this evidence, the gravest first? One finding of severity "fail" makes the audit invalid."""
    found = [finding for guard in GUARDS for finding in guard(evidence)]
    return sorted(found, key=lambda finding: _RANK[finding.severity])
