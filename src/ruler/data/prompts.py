"""A name or a file -> prompts and completions, and their split into forget, retain and held-out groups."""

import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.errors import InputError
from ruler.core.readers.datasets import read_dataset
from ruler.core.readers.safety import pack_texts
from ruler.core.readers.tables import TABLE_SUFFIXES, read_rows, read_table
from ruler.core.registry import Registry
from ruler.data.datasets import PromptSet
from ruler.data.partition import partition_groups
from ruler.data.sources import check_exists, find_home, locate, resolve
from ruler.data.types import Prompts

PROMPT_SUFFIXES = (".jsonl", ".jsonl.gz", *TABLE_SUFFIXES)
FEWEST_HELD_OUT = 20


def load_prompts(
    source: str | os.PathLike[str] | PromptSet = "tofu",
    *,
    prompt: str | None = None,
    completion: str | None = None,
    group: str | None = None,
    id: str | None = None,
    root: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Prompts:
    """Which prompts and completions are there, and which of them must be forgotten together?

    Args:
        source: Key of a dataset (``"tofu"``, ``"lume"``, ``"tofu_real_authors"``, ``"tofu_world_facts"``), a dataset,
            or a path to a file (.jsonl, .jsonl.gz, .csv, .csv.gz, .parquet) or to a Hugging Face dataset on disk.
        prompt, completion: Their columns; ``prompt`` and ``completion`` by default. For your own data only.
        group: Column of the author, document or person; by default every record is a group of its own.
        id: Column of the records' names; by default row numbers.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        progress: Accepted as by the other loaders; reading takes no time.

    Returns:
        Prompts, in the order of the file.

    Raises:
        UnknownNameError: No such dataset or column; says the nearest.
        InputError: A path that is absent, or a record without a text.
        FileFormatError: A file that cannot be read safely.
        DataMismatchError: A dataset in another version.
        DownloadError: The dataset is not on this machine.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "mine.jsonl"
        >>> _ = path.write_text('{"prompt": "Who wrote it?", "completion": "Ann.", "author": "ann"}')
        >>> data = load_prompts(path, group="author")
        >>> data.completions, data.groups.tolist()
        (('Ann.',), ['ann'])
    """
    columns = {"prompt": prompt, "completion": completion, "group": group, "id": id}
    dataset = resolve(source, PromptSet, PROMPT_SUFFIXES)
    if isinstance(dataset, Path):
        return _read_own(dataset, columns)
    named = [name for name, column in columns.items() if column is not None]
    if named:
        raise InputError(f"{named[0]} must be omitted for a dataset with a name; got it for {dataset.key!r}.")
    if dataset.read is not None:
        found, where = dataset.read(), dataset.origin
    else:
        path = locate(dataset, root).path or fetch_prompts(dataset, progress=progress)
        if dataset.parse is None:
            raise InputError(f"parse or read must be given for {dataset.key}; got neither. Say how its file is read.")
        found, where = dataset.parse(path), str(path)
    return replace(found, name=dataset.key, note=dataset.verify(found.content_hash, found.note, where))


def fetch_prompts(dataset: PromptSet, *, progress: bool = False) -> Path:
    """Download prompts into the cache, whatever is there already; loading verifies them."""
    path, download = find_home(dataset)
    download(dataset, progress)
    return path


@dataclass(frozen=True, eq=False)
class PromptSplit:
    """Records to forget, to retain, and of groups that no model is ever trained on."""

    forget: Prompts
    retain: Prompts
    held_out: Prompts


def split_prompts(
    data: Prompts, forget: str | Collection[str], *, n_held_out: int | None = None, seed: int = 999
) -> PromptSplit:
    """Which records are forgotten, which are retained, and which are set aside before any training?

    Whole groups go to one side. Held-out groups are drawn from those that are in none of the data's own
    ``forget_sets``, so the same groups are held out whichever of these sets is forgotten, and one original model serves
    them all. Strata are held out in proportion.

    Args:
        data: As ``load_prompts`` gives it.
        forget: A name of ``data.forget_sets`` (``"forget10"``, ``"forget05"``, ``"forget01"`` of TOFU, ``"forget"`` of
            LUME), or groups.
        n_held_out: Groups to hold out; by default as many as are forgotten, at least 20, but at most half of those
            that are not forgotten.
        seed: Of the draw; the order of the records does not matter.

    Raises:
        InputError: A group without records, or nothing left to retain.

    Example:
        >>> records = tuple("abcdef")
        >>> groups = np.array(["ann", "ann", "bob", "cy", "di", "ed"])
        >>> data = Prompts("mine", records, records, ids=np.arange(6), groups=groups)
        >>> split = split_prompts(data, ["ann"], n_held_out=1, seed=0)
        >>> split.forget.ids.tolist(), len(split.retain), len(split.held_out)
        ([0, 1], 3, 1)
    """
    groups: list[str] = data.groups.tolist()
    if isinstance(forget, str) and data.forget_sets and forget not in groups:
        forget = Registry(f"forget set of {data.name}", data.forget_sets)[forget]
    partition = partition_groups(data.groups, forget)
    others = set(groups) - {groups[row] for row in partition.forget}
    free = sorted(others.difference(*data.forget_sets.values()))
    if n_held_out is None:
        n_held_out = min(max(len(set(groups)) - len(others), FEWEST_HELD_OUT), len(others) // 2, len(free))
    if not 0 < n_held_out <= len(free) or n_held_out == len(others):
        raise InputError(
            f"n_held_out must be at least 1 and leave a group to retain; got {n_held_out}, and {len(free)} groups that "
            "can be held out. Give another number, or more groups."
        )
    order = [free[place] for place in np.random.RandomState(seed).permutation(len(free))]
    if data.strata is not None:
        order.sort(key=dict(zip(groups, data.strata.tolist(), strict=True)).__getitem__)
    chosen = [order[int((place + 0.5) * len(order) / n_held_out)] for place in range(n_held_out)]
    is_held_out = np.isin(data.groups, chosen)
    rows = partition.retain
    return PromptSplit(
        forget=data.select(partition.forget),
        retain=data.select(rows[~is_held_out[rows]]),
        held_out=data.select(np.flatnonzero(is_held_out)),
    )


def _read_own(path: Path, columns: dict[str, str | None]) -> Prompts:
    check_exists(path)
    rows: list[dict[str, Any]]
    if path.is_dir():
        rows = [row for table in read_dataset(path).values() for row in table.to_pylist()]
    elif path.name.lower().endswith((".jsonl", ".jsonl.gz", ".csv")):
        rows = read_rows(path)
    else:
        rows = read_table(path).to_dict("records")
    if not rows:
        raise InputError(f"{path} must hold at least one record; got none. Check the file.")
    known = Registry(f"column of {path.name}", {str(name): name for name in rows[0]})

    def read_column(role: str) -> list[str]:
        name = known[columns[role] or role]
        return [_as_text(row.get(name), name, number) for number, row in enumerate(rows)]

    numbers = [str(number) for number in range(len(rows))]
    ids = read_column("id") if columns["id"] else numbers
    return Prompts(
        name=path.name,
        prompts=tuple(read_column("prompt")),
        completions=tuple(read_column("completion")),
        ids=pack_texts(ids, "ids"),
        groups=pack_texts(read_column("group") if columns["group"] else ids, "groups"),
    )


def _as_text(value: Any, name: str, number: int) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    if not is_number and (not isinstance(value, str) or not value.strip()):
        raise InputError(
            f"column {name!r} must hold a text in every record; got {value!r:.40} in record {number}. Fill it in, or "
            "remove the record."
        )
    return str(value)
