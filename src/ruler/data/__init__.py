"""A name or a file -> arrays, split and partitioned into what is forgotten and what is kept.

A dataset of your own becomes known by its name through `register_dataset`, or from your own package by an entry point
of the group ``ruler.datasets`` that names a `TabularSet`, `ImageSet`, `FaceSet`, `TextSet` or `PromptSet`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ruler.core.errors import InputError
from ruler.data.catalog import DATASETS, list_datasets, register_dataset
from ruler.data.datasets import Dataset, FaceSet, ImageSet, PromptSet, RemoteFile, TabularSet, TextSet
from ruler.data.faces import check_gender, fetch_faces, load_faces, read_faces
from ruler.data.images import fetch_images, load_images
from ruler.data.partition import partition_classes, partition_groups, partition_rows
from ruler.data.prompts import PromptSplit, fetch_prompts, load_prompts, split_prompts
from ruler.data.sources import Location, locate
from ruler.data.split import TabularSplit, sample_rows, split
from ruler.data.tables import fetch_table, load_tabular
from ruler.data.texts import fetch_texts, load_texts, split_sentences
from ruler.data.types import ImageData, ImageSplit, Prompts, TabularData, TextData

__all__ = [
    "DATASETS",
    "Dataset",
    "FaceSet",
    "ImageData",
    "ImageSet",
    "ImageSplit",
    "Location",
    "PromptSet",
    "PromptSplit",
    "Prompts",
    "RemoteFile",
    "TabularData",
    "TabularSet",
    "TabularSplit",
    "TextData",
    "TextSet",
    "check_gender",
    "describe_dataset",
    "fetch_dataset",
    "list_datasets",
    "load_dataset",
    "load_faces",
    "load_images",
    "load_prompts",
    "load_tabular",
    "load_texts",
    "locate",
    "partition_classes",
    "partition_groups",
    "partition_rows",
    "register_dataset",
    "sample_rows",
    "split",
    "split_prompts",
    "split_sentences",
]

Loaded = TabularData | ImageSplit | ImageData | TextData | Prompts

_KINDS: dict[str, tuple[Callable[..., Loaded], Callable[..., Path]]] = {
    "table": (load_tabular, fetch_table),
    "images": (load_images, fetch_images),
    "faces": (load_faces, fetch_faces),
    "text": (load_texts, fetch_texts),
    "prompts": (load_prompts, fetch_prompts),
}
"""How datasets of a kind are loaded, and how they are fetched."""


def load_dataset(name: str, *, progress: bool = False) -> Loaded:
    """What is in this dataset, whatever its kind?

    Args:
        name: Key of a dataset.
        progress: Show on stderr how far reading or downloading is.

    Returns:
        TabularData of a table, ImageSplit of images, ImageData of faces, TextData of texts, Prompts of prompts.

    Raises:
        UnknownNameError: No such dataset; says the nearest.
        DataMismatchError: A dataset in another version.
        DownloadError: It is not on this machine and cannot be fetched.

    Example:
        >>> len(load_dataset("breast_cancer"))
        569
    """
    dataset = DATASETS[name]
    load, _ = _KINDS[dataset.kind]
    return load(dataset, progress=progress)


def fetch_dataset(name: str, *, labels: str | os.PathLike[str] | None = None, progress: bool = False) -> Path:
    """Download a dataset of any kind into the cache, whatever is there already. Only what verifies is kept.

    Args:
        name: Key of a dataset.
        labels: For faces: a table whose first column is the person and whose second is ``female`` or ``male``. By
            default the file has no gender, as its home publishes none. Images that the cache has are not downloaded
            again for it.
        progress: Show on stderr how far the download is.

    Returns:
        Path of the cached file.

    Raises:
        InputError: It comes with a package, so there is nothing to download; or labels that lack a person, hold
            something else, or are not for faces.
        DownloadError: Its home cannot be reached, hands out something else, or asks for an account.
        DataMismatchError: Its home hands out another version.
    """
    dataset = DATASETS[name]
    if labels is not None and dataset.kind != "faces":
        raise InputError(f"labels must be omitted for datasets other than faces; got {str(labels)!r} for {name!r}.")
    words: dict[str, Any] = {} if labels is None else {"labels": labels}
    _, fetch = _KINDS[dataset.kind]
    return fetch(dataset, progress=progress, **words)


def describe_dataset(name: str) -> str:
    """What does the copy on this machine hold, and is it the right one? Loads it, and never downloads.

    Args:
        name: Key of a dataset.

    Returns:
        Its size, and whether its content is as published, as measured here, or what it is instead.

    Raises:
        InputError: No copy on this machine.
        DataMismatchError: A copy that is not what it claims to be.

    Example:
        >>> describe_dataset("breast_cancer")
        '569 rows, 30 features, content as published'
    """
    dataset = DATASETS[name]
    where = locate(dataset)
    if where.place == "to download":
        raise InputError(f"{name} must be on this machine; got no copy. Run: ruler data fetch {name}")
    size, note = _measure(dataset, where.path)
    if note and note == dataset.home_note:
        return f"{size}, not the content measured here: {note}"
    if not dataset.content_hash:
        return f"{size}, content not verified"
    return f"{size}, content as {'published' if dataset.study == 'primary' else 'measured here'}"


def _measure(dataset: Dataset, path: Path | None) -> tuple[str, str]:
    """The size of a dataset that is here, in words, and its note."""
    if isinstance(dataset, FaceSet) and path is not None:  # faces without gender could not be loaded
        arrays, note = read_faces(dataset, path)
        gender = "" if "gender" in arrays else ", without gender (give --labels to ruler data fetch)"
        return f"{len(arrays['images'])} images of {len(arrays['names'])} people{gender}", note
    data = _KINDS[dataset.kind][0](dataset)
    if isinstance(data, TabularData):
        return f"{len(data)} rows, {data.features.shape[1]} features", data.note
    if isinstance(data, ImageSplit):
        return f"{len(data.train)} + {len(data.test)} images", data.train.note
    if isinstance(data, TextData):
        return f"{data.n_documents} documents, {len(data)} sentences", data.note
    if isinstance(data, Prompts):
        return f"{len(data)} prompts, {len(set(data.groups.tolist()))} groups", data.note
    n_people = len(set(data.ids if data.groups is None else data.groups))
    return f"{len(data)} images of {n_people} people", data.note
