"""Columns that are no features: ids, row numbers and labels that a table carries among its numbers."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import GuardFinding

_NAMES = {"id", "ids", "idx", "index", "row", "row_id", "rowid", "label", "labels", "target", "targets", "y", "class"}
_LEAST_ROWS = 30
_MOST_ROWS = 500
_MOST_NUMBERS = 1 << 22
_MOST_NAMED = 3


def check_columns(evidence: Evidence) -> Iterator[GuardFinding]:
    """A column of the unlearned model's rows that looks like an id or a label rather than like a feature.

    Its name says so, or its whole numbers are all distinct on every side, or it rises (or falls) with every forget
    record in the order given. Silent on fewer than 30 records, and where most columns hold whole numbers, as counts and
    one-hot codes do.
    """
    sides = evidence.embeddings["unlearned"]
    n_columns = sides["forget"].shape[1]
    names = evidence.columns if evidence.columns and len(evidence.columns) == n_columns else None
    found = (
        {}
        if names is None
        else {place: "by its name" for place, name in enumerate(names) if name.strip().lower() in _NAMES}
    )
    n_most = max(_LEAST_ROWS, min(_MOST_ROWS, _MOST_NUMBERS // n_columns))
    samples = [_sample(rows, n_most) for rows in sides.values() if len(rows) >= _LEAST_ROWS]
    if samples and n_columns > 1:
        stacked = np.concatenate(samples)
        is_whole = (stacked == np.floor(stacked)).all(axis=0)
        is_varied = (stacked != stacked[0]).any(axis=0)
        if 2 * (is_whole & is_varied).sum() <= is_varied.sum():
            for place in np.flatnonzero(is_whole & is_varied):
                if all(len(np.unique(sample[:, place])) == len(sample) for sample in samples):
                    found.setdefault(int(place), "its whole numbers are all distinct")
            if len(sides["forget"]) >= _LEAST_ROWS:
                given = np.argsort(evidence.order, kind="stable") if len(evidence.order) else slice(None)
                steps = np.diff(_sample(sides["forget"], n_most, given), axis=0)
                for place in np.flatnonzero((steps > 0).all(axis=0) | (steps < 0).all(axis=0)):
                    found.setdefault(int(place), "it rises or falls with every forget record")
    if found:
        some = [
            f"{place} ({names[place]!r}: {why})" if names else f"{place} ({why})"
            for place, why in sorted(found.items())[:_MOST_NAMED]
        ]
        rest = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        one = len(found) == 1
        yield GuardFinding(
            "id_column",
            "warn",
            f"{'Column' if one else 'Columns'} {', '.join(some)}{rest} of the unlearned model's rows "
            f"{'looks' if one else 'look'} like an id or a label rather than like a feature.",
            "Remove it, or name it id, label, group or strata so that it is read as what stands beside the rows.",
        )


def _sample(rows: npt.NDArray[Any], n_most: int, order: Any = slice(None)) -> npt.NDArray[np.float64]:
    """Up to ``n_most`` rows at equal distances, in the order given."""
    places = np.arange(len(rows))[order]
    return np.asarray(rows[places[:: -(-len(places) // n_most)]], dtype=np.float64)
