"""Every published set under one roof: tables, images, faces and texts."""

from pathlib import Path
from typing import Protocol

from ruler.core.errors import InputError
from ruler.core.registry import Registry
from ruler.data.images.faces import fetch_faces, read_published_faces
from ruler.data.images.images import fetch_images, load_images
from ruler.data.images.sets import FACE_SETS, IMAGE_SETS
from ruler.data.sources import locate
from ruler.data.tables.large_sets import LARGE_SETS
from ruler.data.tables.sets import TABULAR_SETS
from ruler.data.tables.tabular import fetch_tabular, load_tabular
from ruler.data.texts.sets import TEXT_SETS
from ruler.data.texts.texts import fetch_texts, load_texts


class AnySet(Protocol):
    """What can be said of every published set, whatever its kind."""

    @property
    def key(self) -> str:
        """Name in code."""

    @property
    def kind(self) -> str:
        """One of table, images, faces, text."""

    @property
    def title(self) -> str:
        """Name in the paper."""

    @property
    def size(self) -> str:
        """How much it holds, in words."""

    @property
    def origin(self) -> str:
        """Where it is published, in words."""

    @property
    def file(self) -> str | None:
        """Where its file lies in a data folder; None for a set that scikit-learn brings along."""

    @property
    def home_note(self) -> str:
        """What its download holds instead of the records measured here."""


PUBLISHED_SETS: Registry[AnySet] = Registry(
    "dataset", {**TABULAR_SETS, **LARGE_SETS, **IMAGE_SETS, **FACE_SETS, **TEXT_SETS}
)


def fetch_set(name: str, *, progress: bool = False) -> Path:
    """Download a published set of any kind into the cache, whatever is there already.

    Args:
        name: Key of a published set.
        progress: Show on stderr, if it is a terminal, how far the download is.

    Returns:
        Path of the cached file.

    Raises:
        DownloadError: Its home cannot be reached, hands out something else, or asks for an account.
    """
    fetch = {"table": fetch_tabular, "images": fetch_images, "faces": fetch_faces}.get(PUBLISHED_SETS[name].kind)
    return fetch_texts(name) if fetch is None else fetch(name, progress=progress)


def describe_set(name: str) -> str:
    """What does the copy on this machine hold, and is it the right one? Loads it, and never downloads.

    Args:
        name: Key of a published set.

    Returns:
        Its size, and whether its content is as published, as measured here, or what it is instead.

    Raises:
        InputError: No copy on this machine.
        DataMismatchError: A copy that is not what it claims to be.

    Example:
        >>> describe_set("breast_cancer")
        '569 rows, 30 features, content as published'
    """
    entry = PUBLISHED_SETS[name]
    where = locate(entry)
    if where.place == "to download":
        raise InputError(f"{name} must be on this machine; got no copy. Run: ruler data fetch {name}")
    size, note = _DESCRIBE[entry.kind](name)
    if note and note == entry.home_note:
        return f"{size}, not the content measured here: {note}"
    return f"{size}, content as {'published' if name in TABULAR_SETS else 'measured here'}"


def _describe_table(name: str) -> tuple[str, str]:
    data = load_tabular(name)
    return f"{len(data)} rows, {data.features.shape[1]} features", data.note


def _describe_images(name: str) -> tuple[str, str]:
    parts = load_images(name)
    return f"{len(parts.train)} + {len(parts.test)} images", parts.train.note


def _describe_faces(name: str) -> tuple[str, str]:
    entry = FACE_SETS[name]
    arrays, note = read_published_faces(entry, locate(entry).path or Path())
    gender = "" if "gender" in arrays else ", without gender (give --labels to ruler data fetch)"
    return f"{len(arrays['images'])} images of {len(arrays['names'])} people{gender}", note


def _describe_texts(name: str) -> tuple[str, str]:
    data = load_texts(name)
    return f"{data.n_documents} distinct documents, {len(data)} sentences", data.note


_DESCRIBE = {"table": _describe_table, "images": _describe_images, "faces": _describe_faces, "text": _describe_texts}
