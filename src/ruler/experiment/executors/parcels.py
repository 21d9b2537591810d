"""What a node may lack, a dataset's file and folders of models: sent there once, through Ray's object store."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruler.core.files import write_atomically
from ruler.core.locations import cache_folder, data_folder
from ruler.data import DATASETS, locate
from ruler.experiment.cell import Workplace

Put = Callable[[bytes], Any]
"""Takes a file's content to the object store and returns a reference."""
Get = Callable[[Any], bytes]
"""Fetches the content of a reference; Ray brings it to a node once, for all its workers."""


@dataclass(frozen=True)
class Folder:
    """Files of a folder, by reference.

    Args:
        name: The folder's own.
        digest: SHA-256 of all names and content.
        files: Name -> reference.
    """

    name: str
    digest: str
    files: dict[str, Any]


@dataclass(frozen=True)
class Parcel:
    """What the jobs of a dataset read, by reference: whoever has it already never fetches it.

    Args:
        data: Place in a data folder -> reference.
        data_root: The coordinator's ``RULER_DATA``, for nodes that name none themselves but see the same disk.
        checkpoints: The published models of the dataset; None where nothing is imported.
        language_model: The folder that was named for texts; None where each node is to find the model itself.
    """

    data: dict[str, Any]
    data_root: str | None = None
    checkpoints: Folder | None = None
    language_model: Folder | None = None


def pack(dataset: str, workplace: Workplace, put: Put) -> Parcel:
    """Read what the jobs of a dataset need.

    Example:
        >>> pack("breast_cancer", Workplace(), put=len).data  # comes with scikit-learn
        {}
    """
    entry = DATASETS[dataset]
    path = locate(entry).path
    return Parcel(
        data={} if path is None or entry.file is None else {entry.file: put(path.read_bytes())},
        data_root=os.environ.get("RULER_DATA"),
        checkpoints=_pack_folder(workplace.checkpoints, f"{dataset}_seed*.pt", put),
        language_model=_pack_folder(_find_folder(workplace) if entry.kind == "text" else None, "*", put),
    )


def unpack(parcel: Parcel, workplace: Workplace, get: Get) -> Workplace:
    """Make this node a place where the dataset's jobs can be done; writes only what is not there.

    A dataset ends up in the cache, where a download would have left it, and is verified in the same way when read.

    Returns:
        The workplace with folders that are on this node.
    """
    if parcel.data_root and Path(parcel.data_root).is_dir():
        os.environ.setdefault("RULER_DATA", parcel.data_root)
    for place, reference in parcel.data.items():
        if not any((folder / place).is_file() for folder in (data_folder(), cache_folder())):
            write_atomically(cache_folder() / place, get(reference))
    language_model = _unpack_folder(parcel.language_model, _find_folder(workplace), get)
    return replace(
        workplace,
        checkpoints=_unpack_folder(parcel.checkpoints, workplace.checkpoints, get),
        language_model=workplace.language_model if language_model is None else str(language_model),
    )


def _find_folder(workplace: Workplace) -> Path | None:
    """The folder that was named for the language model, whether this node has it or not."""
    return None if workplace.language_model is None else Path(workplace.language_model).expanduser()


def _pack_folder(folder: Path | None, pattern: str, put: Put) -> Folder | None:
    if folder is None or not folder.is_dir():
        return None
    digest, files = hashlib.sha256(), {}
    for path in sorted(path for path in folder.glob(pattern) if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)} ".encode() + content)
        files[path.name] = put(content)
    return Folder(folder.name, digest.hexdigest(), files)


def _unpack_folder(folder: Folder | None, here: Path | None, get: Get) -> Path | None:
    """The folder itself where the node sees it, or a copy in the cache, which another content never shares."""
    if folder is None or here is None or here.is_dir():
        return here
    copy = cache_folder() / "imported" / folder.digest / folder.name
    copy.mkdir(parents=True, exist_ok=True)
    for name, reference in folder.files.items():
        if not (copy / name).is_file():
            write_atomically(copy / name, get(reference))
    return copy
