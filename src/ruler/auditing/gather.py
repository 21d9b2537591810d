"""Arguments of an audit -> evidence: every array checked, records put in an order that follows from their content."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from os import PathLike
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from ruler.auditing.alignment import halve
from ruler.auditing.evidence import SIDES, Evidence, LayerRows, Side, SideRows
from ruler.auditing.order import (
    Keys,
    choose_members,
    draw_reference,
    hash_content,
    level_groups,
    match_strata,
    order_rows,
)
from ruler.auditing.settings import AuditSettings, check_settings
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import (
    as_matrix,
    cached_rows_for,
    check_same_columns,
    check_same_shape,
    check_same_space,
    check_same_width,
    measure_norms,
)
from ruler.core.errors import InputError
from ruler.core.stacked import release_pages
from ruler.core.threads import run_in_threads
from ruler.core.types import Embeddings, FloatArray, IndexArray, RowsLike, as_names
from ruler.embeddings.sides import as_rows, check_no_model, load_losses
from ruler.neighbors import Searcher, find_neighbors
from ruler.stats.samples import as_sample

SideLike: TypeAlias = RowsLike | Mapping[str, RowsLike] | str | PathLike[str]
"""An array, a table, a dict of columns, the path of a file, or a dict of arrays by layer."""

ModelLike: TypeAlias = Sequence[SideLike] | Mapping[str, SideLike] | str | PathLike[str]
"""(forget, retain) or (forget, retain, held_out), a dict with these keys, or the path of a folder."""

NamesLike: TypeAlias = npt.ArrayLike | Mapping[str, npt.ArrayLike | None]
"""One per forget record, or a dict with keys forget, retain, held_out."""

LossKind: TypeAlias = Literal["confidence", "likelihood", "error"]

_MOST_CLASSES = 200
_LEAST_LOSS = 1e-3  # losses that rounding makes negative are no likelihoods
_LARGEST_COPY = 1 << 30
"""Bytes of one side of one model: larger ones are read where they lie, in the order that they have."""


@dataclass(frozen=True, eq=False)
class _GivenModel:
    """One model as it was given: ``layers[name][side]``, and what carries the rows of the main layer, by side.

    ``norms[name][side]`` are those of its rows, once these are checked. Of some references only ``losses`` are known.
    """

    layers: Mapping[str, SideRows]
    sides: Mapping[Side, Any]
    losses: Mapping[Side, FloatArray] | None = None
    norms: dict[str, dict[Side, FloatArray]] = field(default_factory=dict)

    @property
    def main(self) -> SideRows:
        return list(self.layers.values())[-1]

    def collect(self, name: str) -> dict[Side, Any]:
        """What the `Embeddings` carry under a name, by side; sides without it are missing."""
        found = {side: getattr(part, name, None) for side, part in self.sides.items() if isinstance(part, Embeddings)}
        return {side: value for side, value in found.items() if value is not None}


def gather_evidence(
    unlearned: ModelLike,
    *,
    oracle: ModelLike | Sequence[ModelLike] | None = None,
    original: ModelLike | None = None,
    reference: ModelLike | Sequence[ModelLike] | None = None,
    ids: NamesLike | None = None,
    groups: NamesLike | None = None,
    settings: AuditSettings | None = None,
    search: Searcher = find_neighbors,
    loss_kind: LossKind | None = None,
    relearned: Mapping[str, Mapping[Side, FloatArray]] | None = None,
) -> Evidence:
    """Check what an audit was given. Arguments as `audit`.

    Args:
        search: Who searches neighbours, such as ``partial(find_neighbors, device="cuda")`` or
            ``partial(find_neighbors_by_blocks, run=...)``; the evidence does not depend on it.
        loss_kind: How losses become scores; None takes negative ones for mean log-likelihoods turned over, others for
            cross-entropies of one right answer.
        relearned: By model and side, losses after the model relearned the other half of all records.

    Raises:
        InputError: As `audit`.

    Example:
        >>> rows = np.random.default_rng(0).normal(size=(10, 3))
        >>> gather_evidence((rows[:3], rows[3:])).has_held_out
        False
    """
    settings = check_settings(settings)
    models = _split_models(unlearned, oracle, original, reference, settings)
    first = models["unlearned"]
    sizes = {side: len(rows) for side, rows in first.main.items()}
    known_ids = {side: np.arange(n) for side, n in sizes.items()} | first.collect("ids")
    known_ids |= list_by_side(ids, "ids", sizes)
    known_groups = first.collect("groups") | list_by_side(groups, "groups", sizes)
    strata = first.collect("labels" if settings.match_labels else "strata")
    is_matched = {"forget", "held_out"} <= strata.keys() and "held_out" in sizes
    if settings.match_labels and not {"forget", "held_out"} <= strata.keys():
        raise InputError(
            "match_labels must come with labels of forget and held-out records; got none. Give Embeddings with labels."
        )
    keys = {side: _hash_side(models, side) for side in sizes}
    order = _order_sides(models, keys, known_ids, known_groups)
    if is_matched:
        order["held_out"] = match_strata(strata, known_groups, order["held_out"])

    if {"forget", "held_out"} <= known_groups.keys():
        order["held_out"] = level_groups(known_groups, order["held_out"])

    def arrange(values: Mapping[Side, Any]) -> dict[Side, Any]:
        return {side: value[order[side]] for side, value in values.items() if side in order}

    ordered_groups = arrange(known_groups)
    retain_keys = keys["retain"][order["retain"]]
    codes = np.unique(ordered_groups["retain"], return_inverse=True)[1] if "retain" in ordered_groups else None
    known_losses = first.collect("losses").values()
    labels = arrange(first.collect("labels"))
    shared: dict[str, Any] = {
        "loss_kind": loss_kind
        or ("likelihood" if any((own < -_LEAST_LOSS).any() for own in known_losses) else "confidence"),
        "classes": code_classes(labels, sizes),
        "settings": settings,
        "halves": halve(retain_keys),
        "members": choose_members(retain_keys, codes),
        "reference": draw_reference(retain_keys, settings),
        "search": search,
    }
    is_moved = {side: not np.array_equal(rows, np.arange(sizes[side])) for side, rows in order.items()}

    def build(name: str, before: Mapping[str, LayerRows] | None = None) -> dict[str, LayerRows]:
        model = models[name]
        losses = arrange(model.losses or model.collect("losses")) or None
        after = (relearned or {}).get(name)
        return {
            place: LayerRows(  # a single layer may have another name in another architecture
                {side: _take_rows(part, order[side]) if is_moved[side] else part for side, part in rows.items()},
                arrange(model.norms.get(layer, {})),
                losses,
                relearned=None if after is None else arrange(after),
                original=None if before is None else before[place],
                ranks_retain=model is first,
                **shared,
            )
            for place, (layer, rows) in zip(
                first.layers, (model.layers or {name: {} for name in first.layers}).items(), strict=True
            )
        }

    before = build("original") if "original" in models else None
    return Evidence(
        unlearned=build("unlearned", before),
        oracles=[build(name) for name in models if name.startswith("oracle")],
        original=before,
        references=[build(name) for name in models if name.startswith("reference")],
        ids=arrange(known_ids),
        groups=ordered_groups,
        settings=settings,
        labels=labels,
        strata=arrange(strata) if is_matched else {},
        features=arrange(first.collect("features")),
        named=frozenset(side for side, names in known_ids.items() if not are_row_numbers(names)),
        order=order["forget"],
        has_comparable_members="held_out" not in ordered_groups or "retain" in ordered_groups,
        draw_seed=int(sum(int(part.sum(dtype=np.uint64)) for part in keys.values()) % (1 << 32)),
        n_unmatched=sizes["held_out"] - len(order["held_out"]) if "held_out" in sizes else 0,
        claimed_ids={name: claimed for name, model in models.items() if (claimed := model.collect("ids"))},
        columns=next(iter(first.collect("columns").values()), None),
    )


def are_row_numbers(ids: npt.NDArray[Any]) -> bool:
    """Whether ids are 0..n-1, as where nobody named the records: equal numbers on two sides then mean nothing.

    Example:
        >>> are_row_numbers(np.array([0, 1, 2])), are_row_numbers(np.array([2, 1, 0]))
        (True, False)
    """
    return ids.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids)))


def code_classes(labels: Mapping[Side, Any], sizes: Mapping[Side, int]) -> dict[Side, npt.NDArray[np.intp]] | None:
    """Labels as codes by side, if they are classes that the retain records know; None otherwise.

    Example:
        >>> labels = {"forget": np.array(["b"]), "retain": np.array(["a", "b"] * 5)}
        >>> code_classes(labels, {"forget": 1, "retain": 10})["forget"].tolist()
        [1]
    """
    if not sizes.keys() <= labels.keys() or len({labels[side].dtype.kind for side in sizes}) > 1:
        return None
    names = np.unique(labels["retain"])
    if not 2 <= len(names) <= _MOST_CLASSES or len(names) > len(labels["retain"]) // 5:
        return None
    if not all(np.isin(labels[side], names).all() for side in sizes):
        return None
    return {side: np.searchsorted(names, labels[side]) for side in sizes}


def _list_given(value: Any, name: str) -> dict[str, Any]:
    """One model or a list of them, by name: oracle, oracle 2, ..."""
    is_list = isinstance(value, list) and all(isinstance(one, tuple | str | PathLike | Mapping) for one in value)
    models = value if is_list else ([] if value is None else [value])
    return {name if number == 1 else f"{name} {number}": one for number, one in enumerate(models, 1)}


def _split_models(
    unlearned: Any, oracle: Any, original: Any, reference: Any, settings: AuditSettings
) -> dict[str, _GivenModel]:
    """Models by name (unlearned, original, oracle, oracle 2, reference, ...), checked alone and against each other."""
    given = {"unlearned": unlearned} | ({} if original is None else {"original": original})
    given |= _list_given(oracle, "oracle")
    models = {name: _split_model(value, name) for name, value in given.items()}
    for name, value in _list_given(reference, "reference").items():
        losses = _read_losses(value, name, models["unlearned"])
        models[name] = _split_model(value, name) if losses is None else _GivenModel({}, {}, losses)
    _check_agreement({name: model for name, model in models.items() if model.layers}, settings)
    tables = []
    for name, model in models.items():
        parts = {side: part for side, part in model.sides.items() if not isinstance(part, Mapping)}
        for one, other in combinations(parts, 2):
            check_same_space(parts[one], parts[other], (f"{name} {one}", f"{name} {other}"))
        # the first side that names its columns: all sides of a model agree
        named = ((f"{name} {side}", part) for side, part in model.sides.items() if getattr(part, "columns", None))
        tables += [next(named)] if model.collect("columns") else []
    for (label, table), (other_label, other_table) in combinations(tables, 2):
        if set(table.columns) == set(other_table.columns):  # or two models may well name them differently
            check_same_columns(table.columns, other_table.columns, (label, other_label))
    for name, model in models.items():
        for layer, sides in model.layers.items():
            where = f" at {layer}" if len(model.layers) > 1 else ""
            model.norms[layer] = {
                side: measure_norms(rows, f"{name} {side}{where}", is_whole=True) for side, rows in sides.items()
            }
    for name, model in models.items():  # what is given must not be passed over in silence
        known = model.collect("losses").keys()
        if known and known != model.main.keys():
            without = ", ".join(side for side in model.main if side not in known)
            raise InputError(
                f"losses of {name} must be given for every side or for none; got them for {', '.join(known)} but not "
                f"for {without}. Give those of the other records too."
            )
    return models


def _read_losses(value: Any, name: str, first: _GivenModel) -> dict[Side, FloatArray] | None:
    """The losses of a reference of which nothing else is given: one number per record and side; None for others."""
    if isinstance(value, str | PathLike):
        value = load_losses(value)
    by_side = dict(zip(SIDES, value, strict=False)) if isinstance(value, tuple) else value
    if not isinstance(by_side, Mapping) or not set(by_side) <= set(SIDES):
        return None
    if any(isinstance(part, str | PathLike | Mapping) for part in by_side.values()):
        return None
    found = {side: np.asarray(part) for side, part in by_side.items() if part is not None}
    if any(part.ndim != 1 for part in found.values()):
        return None
    sizes = {side: len(rows) for side, rows in first.main.items()}
    for side, n in sizes.items():
        shape = found[side].shape if side in found else None
        if shape != (n,):
            raise InputError(
                f"losses of {name} must be one per {side} record, shape ({n},); got {shape}. Give those of every side."
            )
    return {side: as_sample(found[side], f"losses of {name} {side}") for side in sizes}


def _split_model(value: Any, name: str) -> _GivenModel:
    if isinstance(value, str | PathLike):
        from ruler.embeddings.sides import load_model_folder

        value = load_model_folder(value)
    check_no_model(value, name)
    if isinstance(value, Mapping) and {"forget", "retain"} <= value.keys() <= set(SIDES):
        value = tuple(value[side] for side in SIDES if value.get(side) is not None)
    if isinstance(value, tuple | list) and len(value) == 3 and value[2] is None:
        value = value[:2]
    if not isinstance(value, tuple | list) or len(value) not in (2, 3) or any(part is None for part in value):
        got = f"{len(value)} parts" if isinstance(value, tuple | list) else type(value).__name__
        got += " with None among them" if got.endswith("parts") and any(part is None for part in value) else ""
        got += f" with keys {', '.join(map(str, value))[:80]}" if isinstance(value, Mapping) else ""
        raise InputError(
            f"{name} must be a tuple (forget, retain) or (forget, retain, held_out) of arrays, or a folder of such "
            f"files; got {got}. Omit held_out if you have none."
        )
    value = [as_rows(part, f"{name} {side}") for side, part in zip(SIDES, value, strict=False)]
    # one layer, named by whichever side knows it; that sides agree is checked later
    single = next((part.layer for part in value if getattr(part, "layer", None)), "")
    by_layer = [part if isinstance(part, Mapping) else {single: part} for part in value]
    names = list(by_layer[0])
    if not names or any(list(part) != names for part in by_layer):
        raise InputError(
            f"{name} must have the same layers on every side; got {[list(part) for part in by_layer]}. "
            "Embed every side with the same layer=."
        )
    layers: dict[str, SideRows] = {}
    for layer in names:
        sides: dict[Side, npt.NDArray[Any]] = {}
        for side, part in zip(SIDES, by_layer, strict=False):
            label = f"{name} {side}" + (f" at {layer}" if len(names) > 1 else "")
            sides[side] = as_matrix(part[layer], label)
            check_same_width(sides["forget"].shape, sides[side].shape, (f"{name} forget", label))
        if len(sides["retain"]) < 2:
            raise InputError(f"{name} retain must have at least 2 rows; got 1. Give more retain records.")
        layers[layer] = sides
    return _GivenModel(layers, dict(zip(SIDES, (part[names[-1]] for part in by_layer), strict=False)))


def _check_agreement(models: Mapping[str, _GivenModel], settings: AuditSettings) -> None:
    first = models["unlearned"]
    has_oracle = any(name.startswith(("oracle", "reference")) for name in models)
    for name, model in models.items():
        if model.main.keys() != first.main.keys():
            with_it, without = ("unlearned", name) if "held_out" in first.main else (name, "unlearned")
            raise InputError(
                f"held_out must be given for every model or for none; got it for {with_it} but not for {without}. "
                "Embed the held-out records with each model."
            )
        if len(model.layers) != len(first.layers) or (
            len(first.layers) > 1 and list(model.layers) != list(first.layers)
        ):
            raise InputError(
                f"{name} must have the layers of the unlearned model, {', '.join(first.layers)}; got "
                f"{', '.join(model.layers)}. Embed every model with the same layer=."
            )
        for (layer, sides), reference in zip(model.layers.items(), first.layers.values(), strict=True):
            where = f" at {layer}" if len(model.layers) > 1 else ""
            for side, rows in sides.items():
                # An oracle of another architecture can be aligned, so that only the records must be the same.
                is_free = name.startswith("reference") or (settings.align != "never" and has_oracle)
                width = rows.shape[1] if is_free else reference[side].shape[1]
                names = f"unlearned {side}{where}", f"{name} {side}{where}"
                check_same_shape((len(reference[side]), width), rows.shape, names)


def list_by_side(value: Any, name: str, sizes: Mapping[Side, int]) -> dict[Side, npt.NDArray[Any]]:
    """Names or groups as they were given, checked, by side; those of the forget records may come without a key."""
    if value is None:
        return {}
    table = dict(value) if isinstance(value, Mapping) else {"forget": value}
    found: dict[Side, npt.NDArray[Any]] = {}
    for side, labels in table.items():
        if side not in sizes:
            raise InputError(
                f"{name} must be keyed by {', '.join(sizes)}; got {side!r}. Name the sides that were given."
            )
        if labels is None:
            continue
        array, n = np.asarray(labels), sizes[cast(Side, side)]
        if array.shape != (n,):
            advice = "Label every record."
            if array.shape == (n + 1,):
                advice = f"If the first, {str(array[0])!r}, is a heading, it must read {name.removesuffix('s')!r}."
            raise InputError(
                f"{name} of {side} must be one per record, shape ({n},); got shape {array.shape}. {advice}"
            )
        found[cast(Side, side)] = as_names(array, f"{name} of {side}")
    return found


def _hash_side(models: Mapping[str, _GivenModel], side: Side) -> Keys:
    """Keys of a side's records from rows and losses in all models: only records alike in every model share one."""
    keys = [hash_content(model.main[side], salt) for salt, model in enumerate(models.values()) if model.layers]
    keys += [
        hash_content(losses[side][:, None], salt)
        for salt, model in enumerate(models.values(), len(models))
        if side in (losses := model.losses or model.collect("losses"))
    ]
    total: Keys = np.sum(keys, axis=0, dtype=np.uint64)
    return total


def _take_rows(rows: Any, order: IndexArray) -> npt.NDArray[Any]:
    """A copy of the rows in another order."""
    taken = np.empty((len(order), rows.shape[1]), rows.dtype)
    # np.take is far quicker than rows[order], but copies all of a matrix that is not plain, for each block
    is_plain = isinstance(rows, np.ndarray) and rows.flags.c_contiguous and rows.flags.aligned

    def take(span: tuple[int, int]) -> None:
        own = slice(*span)
        if is_plain:
            np.take(rows, order[own], axis=0, out=taken[own], mode="clip")
        else:
            taken[own] = rows[order[own]]

    run_in_threads(take, iterate_blocks(len(order), cached_rows_for(rows.shape[1])))
    release_pages(rows)
    return taken


def _order_sides(
    models: Mapping[str, _GivenModel], keys: Mapping[Side, Keys], ids: Mapping[Side, Any], groups: Mapping[Side, Any]
) -> dict[Side, IndexArray]:
    """The order of every side's rows; a side that is too large for a copy keeps its own."""
    parts = [part for model in models.values() for layer in model.layers.values() for part in layer.items()]
    too_large = {side for side, rows in parts if rows.nbytes > _LARGEST_COPY}
    return {
        side: np.arange(len(own)) if side in too_large else order_rows(own, ids[side], groups.get(side))
        for side, own in keys.items()
    }
