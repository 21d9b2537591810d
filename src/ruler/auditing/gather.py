"""Arguments of an audit -> evidence: every array checked, neighbours and similarities measured once."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ruler.auditing.alignment import SURELY_PAIRED, WORTH_ALIGNING, compare_through, fit_map, halve, pairing_similarity
from ruler.auditing.evidence import MODELS, SIDES, Evidence, ModelName, OracleScores, Side
from ruler.auditing.findings import Pairing
from ruler.auditing.settings import AuditSettings
from ruler.core.checks import (
    as_matrix,
    check_same_columns,
    check_same_shape,
    check_same_space,
    check_same_width,
    measure_norms,
)
from ruler.core.errors import InputError
from ruler.core.types import Embeddings, IndexArray, Neighbors
from ruler.metrics import cosine_similarity
from ruler.neighbors import find_neighbors

Sides = Mapping[Side, npt.NDArray[Any]]


def gather_evidence(
    unlearned: Any,
    *,
    oracle: Any = None,
    original: Any = None,
    ids: Any = None,
    groups: Any = None,
    settings: AuditSettings | None = None,
) -> Evidence:
    """Check what an audit was given and measure it. Arguments as `audit`.

    Raises:
        InputError: As `audit`.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(10, 3))
        >>> gather_evidence((rows[:3], rows[3:])).control
        'retain'
    """
    settings = settings or AuditSettings()
    given: dict[ModelName, Any] = {
        name: value for name, value in zip(MODELS, (unlearned, oracle, original), strict=True) if value is not None
    }
    embeddings = split_models(given, settings)
    check_numbers(embeddings)
    claimed = {name: _claimed_ids(value) for name, value in given.items()}
    sizes = {side: len(rows) for side, rows in embeddings["unlearned"].items()}
    known_ids = {side: np.arange(n) for side, n in sizes.items()} | claimed["unlearned"] | _by_side(ids, "ids", sizes)
    reference = draw_reference(sizes, settings)
    pairing = _judge_pairing(embeddings, settings) if oracle is not None else None
    compared = [name for name in ("unlearned", "original") if name in embeddings] if oracle is not None else []
    return Evidence(
        embeddings=embeddings,
        ids=known_ids,
        groups=_by_side(groups, "groups", sizes),
        nearest={
            name: _find_nearest(embeddings[name], reference) for name in ("unlearned", "original") if name in embeddings
        },
        plain_scores={
            name: _compare_plainly(embeddings, name)
            for name in compared
            if embeddings[name]["forget"].shape == embeddings["oracle"]["forget"].shape
        },
        aligned_scores={
            name: _compare_aligned(embeddings, name, settings.seed) for name in compared if pairing and pairing.n_fitted
        },
        pairing=pairing,
        settings=settings,
        reference=reference,
        claimed_ids={name: sides for name, sides in claimed.items() if sides},
    )


def split_models(given: Mapping[ModelName, Any], settings: AuditSettings) -> dict[ModelName, Sides]:
    """Matrices by model and side, their shapes checked against each other; the numbers in them are not looked at.

    Raises:
        InputError: Not such tuples, not matrices, or shapes that do not fit together.
    """
    embeddings: dict[ModelName, Sides] = {name: _split_sides(value, name) for name, value in given.items()}
    _check_agreement(embeddings, settings)
    _check_spaces(given)
    return embeddings


def check_numbers(embeddings: Mapping[ModelName, Sides]) -> None:
    """Every row of every model has a finite norm.

    Raises:
        InputError: NaN or inf, or norms that over- or underflow.
    """
    for name, sides in embeddings.items():
        for side, rows in sides.items():
            measure_norms(rows, f"{name} {side}")


def _split_sides(value: Any, name: str) -> Sides:
    if not isinstance(value, tuple | list) or len(value) not in (2, 3) or any(part is None for part in value):
        got = f"{len(value)} parts" if isinstance(value, tuple | list) else type(value).__name__
        raise InputError(
            f"{name} must be a tuple (forget, retain) or (forget, retain, held_out) of arrays; got {got}. "
            "Leave held_out away if there is none."
        )
    sides: dict[Side, npt.NDArray[Any]] = {}
    for side, rows in zip(SIDES, value, strict=False):
        label = f"{name} {side}"
        sides[side] = as_matrix(rows, label)
        check_same_width(sides["forget"].shape, sides[side].shape, (f"{name} forget", label))
    if len(sides["retain"]) < 2:
        raise InputError(f"{name} retain must have at least 2 rows; got 1. Give more retain records.")
    return sides


def _check_agreement(embeddings: Mapping[ModelName, Sides], settings: AuditSettings) -> None:
    reference = embeddings["unlearned"]
    for name, sides in embeddings.items():
        if sides.keys() != reference.keys():
            with_it, without = ("unlearned", name) if "held_out" in reference else (name, "unlearned")
            raise InputError(
                f"held_out must be given for every model or for none; got it for {with_it} but not for {without}. "
                "Embed the held-out records with each model."
            )
        for side, rows in sides.items():
            # An oracle of another architecture can be aligned, so that only the records must be the same.
            width = rows.shape[1] if settings.align != "never" and "oracle" in embeddings else reference[side].shape[1]
            check_same_shape((len(reference[side]), width), rows.shape, (f"unlearned {side}", f"{name} {side}"))


def _check_spaces(given: Mapping[ModelName, Any]) -> None:
    """What `Embeddings` say of where their numbers come from fits together, side by side and model by model."""
    labelled = {
        name: [(f"{name} {side}", rows) for side, rows in zip(SIDES, value, strict=False)]
        for name, value in given.items()
    }
    for sides in labelled.values():
        for (first, one), (second, other) in combinations(sides, 2):
            check_same_space(one, other, (first, second))
    tables = [
        next((side for side in sides if isinstance(side[1], Embeddings) and side[1].columns), None)
        for sides in labelled.values()
    ]
    for (first, one), (second, other) in combinations([side for side in tables if side is not None], 2):
        if set(one.columns) == set(other.columns):  # or two models may well name them differently
            check_same_columns(one.columns, other.columns, (first, second))


def _claimed_ids(value: Any) -> dict[Side, npt.NDArray[Any]]:
    return {side: rows.ids for side, rows in zip(SIDES, value, strict=False) if isinstance(rows, Embeddings)}


def _by_side(value: Any, name: str, sizes: Mapping[Side, int]) -> dict[Side, npt.NDArray[Any]]:
    if value is None:
        return {}
    table = dict(value) if isinstance(value, Mapping) else {"forget": value}
    for side in table:
        if side not in sizes:
            raise InputError(
                f"{name} must be keyed by {', '.join(sizes)}; got {side!r}. Name the sides that were given."
            )
    return {
        cast(Side, side): _as_labels(labels, f"{name} of {side}", sizes[cast(Side, side)])
        for side, labels in table.items()
        if labels is not None
    }


def _as_labels(labels: Any, name: str, n: int) -> npt.NDArray[Any]:
    array = np.asarray(labels)
    if array.shape != (n,):
        raise InputError(f"{name} must be one a record, shape ({n},); got shape {array.shape}. Label every record.")
    return array.astype(str) if array.dtype.kind == "O" else array


def draw_reference(sizes: Mapping[Side, int], settings: AuditSettings) -> IndexArray | None:
    """Retain rows to rank against, with replacement so that the bound on M4 holds as stated; None for all rows.

    Raises:
        InputError: A sample is asked for, but placebo sets are to be drawn from all retain records.

    Example:
        >>> draw_reference({"forget": 9, "retain": 900, "held_out": 9}, AuditSettings(n_reference=100)).shape
        (100,)
    """
    n, n_retain = settings.n_reference, sizes["retain"]
    if n is None or n >= n_retain:
        return None
    if "held_out" not in sizes:
        raise InputError(
            f"n_reference must come with held-out records, for placebo sets are drawn from all retain records; got {n} "
            "without them. Give held-out records, or leave n_reference out."
        )
    return np.sort(np.random.default_rng(settings.seed).integers(0, n_retain, n))


def _find_nearest(sides: Sides, reference: IndexArray | None) -> dict[Side, Neighbors]:
    retain = sides["retain"]
    found: dict[Side, Neighbors] = {
        side: find_neighbors(rows, retain) for side, rows in sides.items() if side != "retain"
    }
    if reference is None:
        return {**found, "retain": find_neighbors(retain, retain, exclude_self=True)}
    return {**found, "retain": _leave_out_self(find_neighbors(retain[reference], retain, k=2), reference)}


def _leave_out_self(found: Neighbors, own: IndexArray) -> Neighbors:
    """The nearest other row from the two nearest: the first, unless it is the row itself."""
    place = (found.index[:, :1] == own[:, None]).astype(np.int64)
    return Neighbors(
        np.take_along_axis(found.similarity, place, axis=1), np.take_along_axis(found.index, place, axis=1)
    )


def _judge_pairing(embeddings: Mapping[ModelName, Sides], settings: AuditSettings) -> Pairing:
    unlearned, oracle = embeddings["unlearned"]["retain"], embeddings["oracle"]["retain"]
    plain = float(np.median(cosine_similarity(unlearned, oracle))) if unlearned.shape == oracle.shape else np.nan
    is_surely_paired = plain >= SURELY_PAIRED
    if settings.align == "never" or (settings.align == "auto" and is_surely_paired):
        return Pairing(plain, np.nan, is_surely_paired, False, 0)
    plain, aligned = pairing_similarity(unlearned, oracle, seed=settings.seed)
    is_paired = bool(plain >= SURELY_PAIRED or aligned - plain < WORTH_ALIGNING)
    return Pairing(plain, aligned, is_paired, settings.align == "always" or not is_paired, len(unlearned) // 2)


def _compare_plainly(embeddings: Mapping[ModelName, Sides], name: ModelName) -> OracleScores:
    oracle = embeddings["oracle"]
    scores = {side: cosine_similarity(rows, oracle[side]) for side, rows in embeddings[name].items()}
    return OracleScores(scores, np.arange(len(scores["retain"])))


def _compare_aligned(embeddings: Mapping[ModelName, Sides], name: ModelName, seed: int) -> OracleScores:
    sides, oracle = embeddings[name], embeddings["oracle"]
    fitted, judged = halve(len(sides["retain"]), seed)
    turn = fit_map(sides["retain"], oracle["retain"], fitted)
    scores = {
        side: compare_through(sides[side], oracle[side], turn, judged if side == "retain" else None) for side in sides
    }
    return OracleScores(scores, judged)
