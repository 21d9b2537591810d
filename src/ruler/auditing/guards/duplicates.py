"""Records that stand on two sides under different names: identical and nearly identical embeddings."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from ruler.auditing.evidence import Evidence, Side
from ruler.auditing.findings import GuardFinding
from ruler.auditing.guards.identity import say
from ruler.core.arithmetic import TIE_SLACK, iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.types import Neighbors
from ruler.metrics.paper import compare_rows
from ruler.neighbors import find_neighbors

_IDENTICAL, _NEAR = 1 - float(TIE_SLACK), 1 - 1e-6
_CHANCE = 1e-4
_MOST = 0.5


@dataclass(frozen=True, eq=False)
class _Twins:
    """Records of one side that have a twin on another.

    Args:
        is_twin: (n,) which ones.
        usual: Share that a side has in itself, where each record stands once.
    """

    is_twin: npt.NDArray[np.bool_]
    usual: float

    @property
    def count(self) -> int:
        return int(self.is_twin.sum())

    @property
    def excess(self) -> float:
        """Share beyond the usual one."""
        return float(self.is_twin.mean()) - self.usual

    @property
    def is_unusual(self) -> bool:
        """More than tables with naturally repeated rows give; where none repeats, a single one."""
        return self.count > 0 and float(binom.sf(self.count - 1, len(self.is_twin), self.usual)) < _CHANCE


def check_forget_twins(evidence: Evidence) -> Iterator[GuardFinding]:
    """Forget records with a twin among the retained, more of them than retain records have among themselves."""
    identical = _find_twins(evidence, "forget", _IDENTICAL)
    if identical.is_unusual:
        yield GuardFinding(
            "duplicates",
            "fail" if identical.excess > _MOST else "warn",
            f"{_count(identical)} forget records are identical to a retain record{_usual(identical)}, "
            f"the first is {_name_first(evidence, identical)}. The model was told to keep what it was told to "
            "forget.",
            "Forget the twins too, or leave these records out of the audit.",
        )
        return
    near = _find_twins(evidence, "forget", _NEAR)
    if near.is_unusual:
        yield GuardFinding(
            "near_duplicates",
            "warn",
            f"{_count(near)} forget records are nearly identical to a retain record (similarity above {_NEAR})"
            f"{_usual(near)}, the first is {_name_first(evidence, near)}.",
            "Look at these pairs: copies, crops or edits of one record belong on one side.",
        )


def check_held_out_twins(evidence: Evidence) -> Iterator[GuardFinding]:
    """Held-out records that are training records, so that they are no control."""
    if not evidence.has_held_out:
        return
    within_retain = _find_twins(evidence, "held_out", _IDENTICAL)
    for side, twins in (("retain", within_retain), ("forget", _find_held_out_forget(evidence, within_retain.usual))):
        if twins.is_unusual:
            yield GuardFinding(
                "held_out_overlap",
                # an overlap of share s can move an AUC by s / 2: beyond the margin the control decides the verdict
                "fail" if twins.excess > evidence.settings.margin else "warn",
                f"{_count(twins)} held-out records are identical to a {side} record{_usual(twins)}: they were "
                "trained on.",
                "Hold out records that no model was trained on, and drop copies of training records.",
            )


def _find_twins(evidence: Evidence, side: Side, threshold: float) -> _Twins:
    nearest = evidence.main.nearest
    is_twin = _confirm(evidence, side, "retain", nearest[side], threshold)
    is_usual = _confirm(evidence, "retain", "retain", nearest["retain"], threshold)
    return _Twins(is_twin, float(is_usual.mean()))


def _find_held_out_forget(evidence: Evidence, usual: float) -> _Twins:
    sides = evidence.embeddings["unlearned"]
    nearest = find_neighbors(sides["held_out"], sides["forget"])
    # A forget set is too small to tell how often rows repeat; the larger retain set gives an upper bound.
    return _Twins(_confirm(evidence, "held_out", "forget", nearest, _IDENTICAL), usual)


def _confirm(evidence: Evidence, side: Side, base: Side, nearest: Neighbors, threshold: float) -> npt.NDArray[np.bool_]:
    """Which records have a twin in every model: a record that stands twice does so whoever embeds it."""
    is_twin = nearest.similarity[:, 0] >= threshold
    sample = evidence.main.reference if side == "retain" else None
    own = np.arange(len(is_twin)) if sample is None else sample
    for sides in evidence.embeddings.values():
        suspects = np.flatnonzero(is_twin)
        for start, stop in iterate_blocks(len(suspects), block_rows_for(sides[base].shape[1])):
            rows = suspects[start:stop]
            pair = sides[side][own[rows]], sides[base][nearest.index[rows, 0]]
            is_twin[rows] = compare_rows(*pair, (side, base)) >= threshold
    return is_twin


def _name_first(evidence: Evidence, twins: _Twins) -> str:
    """Id of the first forget record with a twin, in the order given."""
    rows = np.flatnonzero(twins.is_twin)
    return say(evidence.ids["forget"][rows[evidence.order[rows].argmin()]])


def _count(twins: _Twins) -> str:
    return f"{twins.count} of {len(twins.is_twin)}"


def _usual(twins: _Twins) -> str:
    if twins.usual == 0:
        return ", though no two retain records are"
    return f" ({float(twins.is_twin.mean()):.1%}; among retain records {twins.usual:.1%})"
