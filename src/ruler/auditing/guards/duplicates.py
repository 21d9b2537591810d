"""Records that stand on two sides under different names: identical and nearly identical embeddings."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from ruler.auditing.evidence import Evidence, Side
from ruler.auditing.findings import GuardFinding
from ruler.auditing.guards.records import say
from ruler.core.arithmetic import TIE_SLACK, iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.types import Neighbors
from ruler.metrics.paper import compare_rows

_IDENTICAL, _NEAR = 1 - float(TIE_SLACK), 1 - 1e-6
_CHANCE = 1e-4
_MOST = 0.5
_MOST_EXCESS = 0.1


@dataclass(frozen=True, eq=False)
class _Copies:
    """Which records of one side (n,) have a copy on another, and the share that a side has in itself."""

    is_copy: npt.NDArray[np.bool_]
    usual: float

    @property
    def excess(self) -> float:
        """Share beyond the usual one."""
        return float(self.is_copy.mean()) - self.usual

    @property
    def is_unusual(self) -> bool:
        """More than tables with naturally repeated rows give; where none repeats, a single one."""
        count = int(self.is_copy.sum())
        return count > 0 and float(betainc(count, len(self.is_copy) - count + 1, self.usual)) < _CHANCE

    @property
    def count(self) -> str:
        return f"{int(self.is_copy.sum())} of {len(self.is_copy)}"

    @property
    def beside_usual(self) -> str:
        if self.usual == 0:
            return ", though no two retain records are alike"
        return f" ({float(self.is_copy.mean()):.1%}; among retain records {self.usual:.1%})"


def check_forget_copies(evidence: Evidence) -> Iterator[GuardFinding]:
    """Forget records with a copy among the retained, more of them than retain records have among themselves."""
    identical = _find_copies(evidence, "forget", _IDENTICAL)
    if identical.is_unusual:
        yield GuardFinding(
            "duplicates",
            "fail" if identical.excess > _MOST else "warn",
            f"{identical.count} forget records are identical to a retain record{identical.beside_usual}. "
            f"The first is {_name_first(evidence, identical)}. The model was told to keep what it was told to "
            "forget.",
            "Forget the copies too, or leave these records out of the audit.",
        )
        return
    near = _find_copies(evidence, "forget", _NEAR)
    if near.is_unusual:
        yield GuardFinding(
            "near_duplicates",
            "warn",
            f"{near.count} forget records are nearly identical to a retain record (similarity above {_NEAR})"
            f"{near.beside_usual}. The first is {_name_first(evidence, near)}.",
            "Look at these pairs: copies, crops or edits of one record belong on one side.",
        )


def check_held_out_copies(evidence: Evidence) -> Iterator[GuardFinding]:
    """Held-out records that are training records, so that they are no control."""
    if not evidence.has_held_out:
        return
    of_retain = _find_copies(evidence, "held_out", _IDENTICAL)
    nearest = evidence.main.search(evidence.main.rows["held_out"], evidence.main.rows["forget"])
    # A forget set is too small to tell how often rows repeat; the larger retain set gives an upper bound.
    of_forget = _Copies(_confirm(evidence, "held_out", "forget", nearest, _IDENTICAL), of_retain.usual)
    for side, copies in (("retain", of_retain), ("forget", of_forget)):
        if copies.is_unusual:
            yield GuardFinding(
                "held_out_overlap",
                # an overlap of share s can move an AUC by s / 2: beyond the margin the control decides the verdict
                "fail" if copies.excess > _MOST_EXCESS else "warn",
                f"{copies.count} held-out records are identical to a {side} record{copies.beside_usual}: they were "
                "trained on.",
                "Hold out records that no model was trained on, and drop copies of training records.",
            )


def _find_copies(evidence: Evidence, side: Side, threshold: float) -> _Copies:
    nearest = evidence.main.nearest
    is_copy = _confirm(evidence, side, "retain", nearest[side], threshold)
    is_usual = _confirm(evidence, "retain", "retain", nearest["retain"], threshold)
    return _Copies(is_copy, float(is_usual.mean()))


def _confirm(evidence: Evidence, side: Side, base: Side, nearest: Neighbors, threshold: float) -> npt.NDArray[np.bool_]:
    """Which records have a copy in every model: a record that stands twice does so whoever embeds it."""
    is_copy = nearest.similarity[:, 0] >= threshold
    sample = evidence.main.reference if side == "retain" else None
    own = np.arange(len(is_copy)) if sample is None else sample
    for sides in [model.rows for model in evidence.models.values()]:
        suspects = np.flatnonzero(is_copy)
        for start, stop in iterate_blocks(len(suspects), block_rows_for(sides[base].shape[1])):
            rows = suspects[start:stop]
            pair = sides[side][own[rows]], sides[base][nearest.index[rows, 0]]
            is_copy[rows] = compare_rows(*pair, (side, base)) >= threshold
    return is_copy


def _name_first(evidence: Evidence, copies: _Copies) -> str:
    """Id of the first forget record with a copy, in the order given."""
    rows = np.flatnonzero(copies.is_copy)
    return say(evidence.ids["forget"][rows[evidence.order[rows].argmin()]])
