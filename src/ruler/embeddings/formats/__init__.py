"""Formats of embedding files, one function each to read and write; here what they share: which entry is what."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.safety import check_text_array, pack_texts
from ruler.core.types import Embeddings, as_names

MATRIX_NAMES = ("values", "embeddings", "embedding")
BESIDE_NAMES = {
    "ids": ("ids", "id"),
    "labels": ("labels", "label"),
    "losses": ("losses", "loss"),
    "groups": ("groups", "group"),
    "strata": ("strata",),
}
"""What stands beside the rows, by field of `Embeddings`, under the names that files may give it."""

_MOST_LISTED = 8


@dataclass(frozen=True, eq=False)
class Opened:
    """What a file holds, its rows read only when asked for.

    Args:
        values: (n, p) array, memory map, or anything with ``shape``, ``dtype`` and rows by slice or number.
        beside: By field of `Embeddings` (ids, labels, losses, groups, strata), (n,) each; only what the file has.
        layer: Where in the model the rows were read, if the file says so.
        columns: What a table calls its columns of numbers, in order; None where the file names none.
    """

    values: Any
    beside: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    layer: str | None = None
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Format:
    """How one kind of file is read and written.

    Args:
        load: Takes the file and the name of what is to serve as strata, or None. May raise anything.
        save: Writes embeddings whose values are floats and whose ids are int64 or text.
        open_rows: As ``load``, with rows that are read only when asked for; None where a file cannot be one shard of
            many.
    """

    load: Callable[[Path, str | None], Opened]
    save: Callable[[Embeddings, Path], None]
    open_rows: Callable[[Path, str | None], Opened] | None = None


def find_named(names: Iterable[str], path: Path | str) -> str | None:
    """The entry whose name says that it holds the embeddings, if there is one.

    Example:
        >>> find_named(["embedding", "label"], Path("rows.parquet"))
        'embedding'
    """
    known = [name for name in MATRIX_NAMES if name in names]
    if len(known) > 1:
        raise FileFormatError(
            f"{path} must hold its embeddings under one name; got {_listed(known)}. Rename or remove all but one."
        )
    return known[0] if known else None


def find_beside(names: Collection[str], path: Path | str, strata: str | None = None) -> dict[str, str]:
    """The entries that stand beside the rows, by field of `Embeddings`; ``strata`` may have a name of its own.

    Example:
        >>> find_beside(["embedding", "label", "age"], Path("rows.parquet"), strata="age")
        {'labels': 'label', 'strata': 'age'}
    """
    found = {}
    for name, aliases in BESIDE_NAMES.items():
        wanted = (strata,) if name == "strata" and strata is not None else aliases
        known = [alias for alias in wanted if alias in names]
        if len(known) > 1:
            raise FileFormatError(
                f"{path} must hold its {name} under one name; got {_listed(known)}. Rename or remove all but one."
            )
        if known:
            found[name] = known[0]
    if strata is not None and "strata" not in found:
        raise FileFormatError(
            f"{path} must hold the strata that were asked for, {strata!r}; got {_listed(names)}. Check the name."
        )
    return found


def pick_matrix(n_dims_of: Mapping[str, int], path: Path, beside: Collection[str] = ()) -> str:
    """The entry that holds the embeddings: one of a known name, else the only 2-D one that is not ``beside`` the rows.

    Example:
        >>> pick_matrix({"penultimate": 2, "labels": 1}, Path("rows.npz"))
        'penultimate'
    """
    named = find_named(n_dims_of, path)
    if named is not None:
        return named
    weight = next((name for name in n_dims_of if name.endswith((".weight", ".bias"))), None)
    if weight is not None:
        raise FileFormatError(
            f"{path} must hold embeddings; got the weights of a model, such as {weight[:80]!r}. Name the checkpoint in "
            "a TOML file under [models], or embed the records and save the rows."
        )
    if {"indptr", "indices", "data"} <= n_dims_of.keys():
        raise FileFormatError(f"{path} must hold a dense array; got a sparse matrix. Save its .toarray().")
    matrices = [name for name, n_dims in n_dims_of.items() if n_dims == 2 and name not in beside]
    if len(matrices) != 1:
        raise FileFormatError(
            f"{path} must hold one 2-D array, or name it 'values'; got {len(matrices)} of them among "
            f"{len(n_dims_of)} entries: {_listed(n_dims_of)}."
        )
    return matrices[0]


def _listed(names: Iterable[str]) -> str:
    """The first few names; a file of others may hold any number of any length."""
    few = [repr(name)[:80] for name in itertools.islice(names, _MOST_LISTED + 1)]
    return ", ".join(few if len(few) <= _MOST_LISTED else [*few[:-1], "..."]) or "none"


def beside_of(embeddings: Embeddings) -> dict[str, npt.NDArray[Any]]:
    """What stands beside the rows, by field; only what is known."""
    found = {name: getattr(embeddings, name) for name in BESIDE_NAMES}
    return {name: values for name, values in found.items() if values is not None}


def storable(name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What stands beside the rows as int64, float64 or text, whatever it came as.

    Args:
        name: Field of `Embeddings`: ids, labels, losses, groups or strata.
        values: (n,) or (n, 1).

    Raises:
        InputError: Nothing of this kind, or an entry is missing.

    Example:
        >>> storable("groups", np.array(["ann", "bob"], dtype=object)).tolist()
        ['ann', 'bob']
    """
    check_text_array(values, name)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.dtype.kind in ("iu" if name == "ids" else "iub"):
        values = values.astype(np.int64, copy=False)
    if name == "losses" and values.dtype.kind not in "if":
        raise InputError(f"losses must be numbers; got {values.dtype}. Leave losses out if unknown.")
    if name == "losses" or (values.dtype.kind == "f" and name != "ids"):
        return values.astype(np.float64, copy=False)
    if values.dtype.kind == "i":
        return values
    listed = values.tolist()
    if name == "ids":
        are_whole = all(isinstance(value, int) and not isinstance(value, bool) for value in listed)
        if not are_whole and not all(isinstance(value, str) for value in listed):
            kinds = sorted({type(value).__name__ for value in listed})
            raise InputError(f"ids must be integers or text; got {', '.join(kinds)}. Convert them to text.")
    elif any(isinstance(value, list | dict | bytes) for value in listed):
        raise InputError(f"{name} must be one number or text per record; got others. Convert them to text.")
    else:
        as_names(values, name)
    if all(isinstance(value, int) for value in listed):
        return np.array(listed, dtype=np.int64)
    if all(isinstance(value, int | float) for value in listed):
        return np.array(listed, dtype=np.float64)
    texts = [str(value) for value in listed]  # dates too
    for text in texts:
        if not text.isprintable() and text.encode(errors="replace").decode() != text:
            raise InputError(f"{name} must be valid Unicode; got {text!r}. Clean the names first.")
    return pack_texts(texts, name)
