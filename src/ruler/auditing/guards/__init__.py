"""Doubts about the evidence itself: a table of guards, each silent on sound evidence."""

from collections.abc import Callable, Iterator

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding
from ruler.auditing.guards.attainable import check_attainable
from ruler.auditing.guards.collapse import check_collapse
from ruler.auditing.guards.columns import check_columns
from ruler.auditing.guards.duplicates import check_forget_twins, check_held_out_twins
from ruler.auditing.guards.exchangeability import check_exchangeability
from ruler.auditing.guards.groups import check_groups
from ruler.auditing.guards.identity import check_order, check_repeats, check_sharing
from ruler.auditing.guards.oracle import check_pairing
from ruler.auditing.guards.sameness import check_sameness
from ruler.auditing.guards.size import check_size
from ruler.auditing.guards.swapped import check_swapped

Guard = Callable[[Evidence], Iterator[GuardFinding]]

GUARDS: tuple[Guard, ...] = (
    check_order,
    check_sharing,
    check_repeats,
    check_columns,
    check_groups,
    check_sameness,
    check_pairing,
    check_held_out_twins,
    check_forget_twins,
    check_collapse,
    check_swapped,
    check_exchangeability,
    check_attainable,
    check_size,
)
_RANK = {"fail": 0, "warn": 1, "note": 2}


def run_guards(evidence: Evidence) -> list[GuardFinding]:
    """What speaks against this evidence, the gravest first? Nothing does: an empty list.

    Args:
        evidence: Checked input of an audit.

    Returns:
        Findings; one with severity "fail" makes the audit invalid.
    """
    found = [finding for guard in GUARDS for finding in guard(evidence)]
    return sorted(found, key=lambda finding: _RANK[finding.severity])
