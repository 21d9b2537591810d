"""Records that are not what they claim: ids, groups and columns that do not fit, sides that look exchanged."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.auditing.evidence import SIDES, Evidence
from ruler.auditing.findings import GuardFinding
from ruler.auditing.gather import are_row_numbers
from ruler.stats.auc import measure_effect

_LONGEST_SHOWN = 40
_MOST_NAMED = 3
_WHY_GROUPS_MATTER = {
    ("forget", "retain"): "Retain records of a group show the model what its forget records are like.",
    ("forget", "held_out"): "Records of the same group are no independent control.",
    ("retain", "held_out"): "Held-out records of a retained group lie closer to retain records than others can.",
}
_NAMES = {"id", "ids", "idx", "index", "row", "row_id", "rowid", "label", "labels", "target", "targets", "y", "class"}
_LEAST_ROWS, _MOST_ROWS, _MOST_NUMBERS = 30, 500, 1 << 22
_APART = 4.0  # standard errors


def check_order(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that came with one model and differ, row by row, from those of another."""
    for side in SIDES:
        claimed = {model: ids[side] for model, ids in evidence.claimed_ids.items() if side in ids}
        for first, second in combinations(claimed, 2):
            differing = _find_differing_rows(claimed[first], claimed[second])
            if differing:
                row = differing[0]
                yield GuardFinding(
                    "ids_differ",
                    "fail",
                    f"{first} and {second} hold different {say_side(side)} records: {len(differing)} of "
                    f"{len(claimed[first])} ids differ, the first in row {row}: {say(claimed[first][row])} and "
                    f"{say(claimed[second][row])}.",
                    "Sort both by id, or embed both models from the same data.",
                )
                break  # the other pairs would repeat it


def check_sharing(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that stand on two sides, although a record is forgotten, retained or held out."""
    for first, second in combinations([side for side in SIDES if side in evidence.ids], 2):
        if not {first, second} <= evidence.named:
            continue
        ids, others = evidence.ids[first], evidence.ids[second]
        if ids.dtype == others.dtype or ids.dtype.kind == others.dtype.kind == "U":
            both = np.intersect1d(ids, others).tolist()
        else:  # NumPy would round large numbers; a number never equals text
            both = list(set(ids.tolist()) & set(others.tolist()))
        if both:
            yield GuardFinding(
                "shared_ids",
                "fail",
                f"{len(both)} ids are both {say_side(first)} and {say_side(second)} records: "
                f"{say_some(sorted(both, key=str))}.",
                "Put each record on one side; give records of different sources different names.",
            )


def check_repeats(evidence: Evidence) -> Iterator[GuardFinding]:
    """Ids that stand twice on one side, so that one record counts as several."""
    for side in (side for side in evidence.ids if side in evidence.named):  # row numbers name each record once
        ids = evidence.ids[side]
        names, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            most = counts.argmax()
            yield GuardFinding(
                "repeated_ids",
                "warn",
                f"{int((counts > 1).sum())} ids name several {say_side(side)} records; {say(names[most])} names "
                f"{counts[most]}. Repeated records make p-values too small.",
                "Give each record once, with a name of its own; say what belongs together by groups.",
            )


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
                f"{say_side(pair[1])} records: {say_some(shared)}. {_WHY_GROUPS_MATTER[pair]}",
                "Put whole groups on one side: forget all of a group, and hold out groups that were never trained on.",
            )


def check_columns(evidence: Evidence) -> Iterator[GuardFinding]:
    """A column of the unlearned model's rows that looks like an id or a label rather than like a feature.

    Its name says so, or its whole numbers are all distinct on every side, or it rises (or falls) with every forget
    record in the order given. Silent on fewer than 30 records, and where most columns hold whole numbers, as counts and
    one-hot codes do.
    """
    sides = evidence.main.rows
    n_columns = sides["forget"].shape[1]
    names = evidence.columns if evidence.columns and len(evidence.columns) == n_columns else None
    found = {place: "by its name" for place, name in enumerate(names or ()) if name.strip().lower() in _NAMES}
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


def check_swapped(evidence: Evidence) -> Iterator[GuardFinding]:
    """More to forget than to keep: fails if the oracle, too, knows the forget records and not the retain records."""
    n_forget, n_retain = len(evidence.ids["forget"]), len(evidence.ids["retain"])
    if n_forget <= n_retain:
        return
    message = f"There are more forget records ({n_forget:,}) than retain records ({n_retain:,})."
    is_swapped = False
    losses = evidence.main_oracles[0].losses if evidence.has_oracle else None
    if losses is not None and evidence.has_held_out:
        forget, retain = (measure_effect(losses[side], losses["held_out"]) for side in ("forget", "retain"))
        is_swapped = forget.statistic < -_APART and retain.statistic > -_APART / 2
        if is_swapped:
            message += (
                f" And the oracle answers better for forget than for held-out records (AUC of its loss "
                f"{forget.value:.2f}), but not for retain records ({retain.value:.2f})."
            )
    yield GuardFinding(
        "swapped_sides",
        "fail" if is_swapped else "warn",
        message,
        "Check which file holds the records that were to be forgotten.",
    )


def say_side(side: str) -> str:
    """A side in prose."""
    return side.replace("_", "-")


def say(name: Any) -> str:
    """An id in a message, cut to a bearable length.

    Example:
        >>> say("ann"), len(say("x" * 10_000))
        ("'ann'", 43)
    """
    text = repr(name.item() if isinstance(name, np.generic) else name)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def say_some(names: Sequence[Any]) -> str:
    """The first three of many names.

    Example:
        >>> say_some(["ann", "bob"]), say_some([1, 2, 3, 4, 5])
        ("'ann', 'bob'", '1, 2, 3 and 2 more')
    """
    rest = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(map(say, names[:_MOST_NAMED])) + rest


def _find_differing_rows(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> list[int]:
    if are_row_numbers(first) != are_row_numbers(second):
        named = second if are_row_numbers(first) else first
        # Row numbers claim nothing about names, but the same numbers in another order are other rows.
        if named.dtype.kind not in "iu" or set(named.tolist()) != set(range(len(named))):
            return []
    kinds = {first.dtype.kind, second.dtype.kind}
    if kinds <= {"i", "u"} or kinds == {"U"}:
        return np.flatnonzero(first != second).tolist()
    return [row for row, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)) if a != b]


def _sample(rows: npt.NDArray[Any], n_most: int, order: Any = slice(None)) -> npt.NDArray[np.float64]:
    """Up to ``n_most`` rows at equal distances, in the order given."""
    places = np.arange(len(rows))[order]
    return np.asarray(rows[places[:: -(-len(places) // n_most)]], dtype=np.float64)
