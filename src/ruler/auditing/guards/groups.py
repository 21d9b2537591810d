"""Groups: a person whose erasure is audited has all records on one side."""

from collections.abc import Iterator
from itertools import combinations

from ruler.auditing.evidence import SIDES, Evidence
from ruler.auditing.findings import GuardFinding
from ruler.auditing.guards.identity import say_side, say_some

_WHY = {
    ("forget", "retain"): "What the model was told to keep of a group answers for what it was told to forget.",
    ("forget", "held_out"): "Records of the same group are no independent control.",
    ("retain", "held_out"): "Held-out records with kin among the retained lie closer to them than forget records can.",
}


def check_groups(evidence: Evidence) -> Iterator[GuardFinding]:
    """Groups that stand on two sides: tests that move whole groups have no meaning then."""
    for pair in combinations([side for side in SIDES if side in evidence.groups], 2):
        first, second = (set(evidence.groups[side].tolist()) for side in pair)
        shared = sorted(first & second, key=str)
        if shared:
            yield GuardFinding(
                "shared_groups",
                "fail",
                f"{len(shared)} {'group has' if len(shared) == 1 else 'groups have'} both {say_side(pair[0])} and "
                f"{say_side(pair[1])} records: {say_some(shared)}. {_WHY[pair]}",
                "Put whole groups on one side: forget all of a group, and hold out groups that were never trained on.",
            )
