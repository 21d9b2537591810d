"""A name, a folder or a file -> images of faces, with the person on each."""

import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError, RulerError
from ruler.core.readers.arrays import read_npz
from ruler.core.readers.datasets import is_dataset_folder, only_part
from ruler.core.readers.tables import read_table
from ruler.core.types import IndexArray
from ruler.data.homes.lfw import download_lfw
from ruler.data.huggingface import read_image_dataset
from ruler.data.images.data import ImageData
from ruler.data.images.files import write_arrays
from ruler.data.images.folder import find_parts, read_image_folder
from ruler.data.images.sets import FACE_SETS, FaceSet
from ruler.data.sources import cached_file, check_exists, find_set, is_path, locate
from ruler.data.tables.encoding import encode_classes
from ruler.data.verification import verify_content

_FIELDS = ("images", "identity", "names")
_GENDERS = ("female", "male")


def load_faces(
    name_or_path: str | os.PathLike[str] = "lfw",
    *,
    labels: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    image_size: tuple[int, int] | None = None,
    progress: bool = False,
) -> ImageData:
    """Whose face is on each image, and what is a model to say about it?

    ``groups`` are the people. ``target`` is what models are trained on: for LFW the gender (0 female, 1 male). The
    download of LFW brings no gender, and it is not guessed from names: give ``labels``. For a folder of your own,
    one subfolder a person, or a Hugging Face dataset saved on disk and labelled by person, each in one part, ``target``
    is the person unless ``labels`` say something else.

    Args:
        name_or_path: ``"lfw"``, or a path to a folder or dataset, or to an ``.npz`` with the arrays images, identity,
            names and, if known, gender.
        labels: Table (.csv, .csv.gz or .parquet) whose first column is the person and whose second is the label.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        image_size: Height and width that all images are resized to; for your own folder or dataset only.
        progress: Show on stderr, if it is a terminal, how far reading or downloading is.

    Returns:
        ImageData with groups; training and test part are for the caller to cut, by whole people or not.

    Raises:
        UnknownNameError: No such set; says the nearest.
        InputError: A path that is absent, images of several sizes, several parts, people without a label, or no
            labels at all.
        FileFormatError: A file that cannot be read safely.
        DataMismatchError: A published set in another version.
        DownloadError: The set is not on this machine and cannot be fetched.

    Example:
        >>> load_faces("lwf")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: face set must be one of lfw; got 'lwf'. Did you mean 'lfw'? ...
    """
    if is_path(name_or_path, FACE_SETS, (".npz",)):
        return _load_own(Path(name_or_path), labels, image_size, progress=progress)
    entry = find_set(str(name_or_path), FACE_SETS)
    if image_size is not None:
        raise InputError(f"image_size must be left out for a published set; got {image_size} for {entry.key!r}.")
    path = locate(entry, None if root is None else Path(root)).path or fetch_faces(entry.key, progress=progress)
    arrays, note = read_published_faces(entry, path)
    return replace(_from_arrays(arrays, entry.key, labels), note=note)


def read_published_faces(entry: FaceSet, path: Path) -> tuple[dict[str, npt.NDArray[Any]], str]:
    """The arrays of a published set and the note that belongs to them; a download has no array ``gender``.

    Raises:
        DataMismatchError: Neither the copy measured here nor a download.
        FileFormatError: A file that cannot be read safely.
    """
    arrays = _read_faces(path)
    content_hash = _from_arrays(arrays, entry.key, None).content_hash if "gender" in arrays else "no gender"
    return arrays, verify_content(entry, content_hash, str(arrays.get("note", "")), str(path))


def check_gender(name: str = "lfw") -> None:
    """Whether the copy on this machine says of every face what a study trains on.

    Raises:
        InputError: There is no copy, or one without gender.
        DataMismatchError: Neither the copy measured here nor a download.
        FileFormatError: A file that cannot be read safely.
    """
    entry = FACE_SETS[name]
    path = locate(entry).path
    if path is None or "gender" not in read_published_faces(entry, path)[0]:
        raise InputError(
            f"{entry.file} must be in the folder that RULER_DATA names or in the cache, with the array gender; got "
            f"{'no file' if path is None else f'{path} without it'}, and no public home has it. Make a table of two "
            f"columns, person and female or male, and run: ruler data fetch {name} --labels TABLE.csv"
        )


def fetch_faces(name: str = "lfw", *, labels: str | os.PathLike[str] | None = None, progress: bool = False) -> Path:
    """Download a published set of faces into the cache, whatever is there already.

    Args:
        name: Key of a published set.
        labels: Table whose first column is the person and whose second is ``female`` or ``male``; by default the
            file has no gender, as its home publishes none. Images that the cache has are not downloaded again for it.
        progress: Show on stderr, if it is a terminal, how far the download is.

    Returns:
        Path of the cached file: images and people, and gender where labels were given.

    Raises:
        DownloadError: Its home cannot be reached or hands out something else.
        InputError: Labels that lack a person or hold something else.
    """
    entry = FACE_SETS[name]
    path = cached_file(entry)
    if labels is None:
        arrays = download_lfw(entry, progress=progress)
    else:
        read_table(Path(labels))  # before a long download
        arrays = _find_faces(entry, path, progress=progress)
        arrays = {**arrays, "gender": _read_gender(arrays, labels)}
    write_arrays(path, {**arrays, "note": np.array(entry.home_note)})
    return path


def _find_faces(entry: FaceSet, path: Path, *, progress: bool) -> dict[str, npt.NDArray[Any]]:
    with suppress(RulerError):  # a copy in the cache that is broken or of another kind is replaced, as by any download
        arrays, note = read_published_faces(entry, path)
        if note == entry.home_note:
            return arrays
    return download_lfw(entry, progress=progress)


def _read_gender(arrays: dict[str, npt.NDArray[Any]], labels: str | os.PathLike[str]) -> IndexArray:
    codes, classes = _label_people(arrays["names"].astype(str), arrays["identity"].astype(np.int64), labels)
    if classes != _GENDERS:
        raise InputError(f"{labels} must say {' or '.join(_GENDERS)} of each person; got {', '.join(classes)}.")
    return codes


def _load_own(
    path: Path, labels: str | os.PathLike[str] | None, image_size: tuple[int, int] | None, *, progress: bool
) -> ImageData:
    check_exists(path)
    if not path.is_dir():
        if image_size is not None:
            raise InputError(
                f"image_size must be left out for an .npz file; got {image_size}. Resize the arrays in it."
            )
        return _from_arrays(_read_faces(path), path.name, labels)
    if is_dataset_folder(path):
        _, found = only_part(read_image_dataset(path, image_size, progress=progress), path)
    else:
        parts = find_parts(path)
        part = only_part(parts, path)[0] if parts else ""
        found = read_image_folder(path / part, image_size, progress=progress)
    groups = np.array(found.classes)[found.target]
    people, identity = np.unique(groups, return_inverse=True)  # a dataset may name people of whom it has no image
    target, classes = (found.target, found.classes) if labels is None else _label_people(people, identity, labels)
    return replace(found, target=target, classes=classes, groups=groups)


def _read_faces(path: Path) -> dict[str, npt.NDArray[Any]]:
    arrays = read_npz(path)
    absent = [field for field in _FIELDS if field not in arrays]
    if absent:
        raise FileFormatError(
            f"{path} must hold the arrays {', '.join(_FIELDS)}; got none named {', '.join(absent)}. "
            "Save them with numpy.savez_compressed."
        )
    identity, names = arrays["identity"], arrays["names"]
    is_row = identity.ndim == names.ndim == 1 and identity.dtype.kind in "iu"
    if not is_row or identity.min(initial=0) < 0 or identity.max(initial=0) >= len(names):
        raise FileFormatError(
            f"identity in {path} must be rows of names, one an image; got {identity.dtype} of shape {identity.shape} "
            f"for names of shape {names.shape}."
        )
    gender = arrays.get("gender", identity)
    if arrays["images"].ndim != 4 or gender.dtype.kind not in "iub":
        raise FileFormatError(
            f"{path} must hold images (n, height, width, channels) and gender as 0 or 1; got shape "
            f"{arrays['images'].shape} and {gender.dtype}."
        )
    return arrays


def _from_arrays(arrays: dict[str, Any], name: str, labels: str | os.PathLike[str] | None) -> ImageData:
    people, identity = arrays["names"].astype(str), arrays["identity"].astype(np.int64)
    has_gender = "gender" in arrays
    if has_gender == (labels is not None):
        raise InputError(
            f"labels must be {'left out: the file brings gender' if has_gender else 'given: no gender comes with it'}; "
            f"got {labels!r} for {name!r}. They are a table of two columns, person and label."
        )
    target, classes = (
        (arrays["gender"].astype(np.int64), _GENDERS) if has_gender else _label_people(people, identity, labels)
    )
    n_seen: Counter[int] = Counter()
    ids = []
    for person in identity.tolist():
        ids.append(f"{people[person]}/{n_seen[person]}")
        n_seen[person] += 1
    return ImageData(
        name=name, images=arrays["images"], target=target, classes=classes, ids=np.array(ids), groups=people[identity]
    )


def _label_people(
    people: npt.NDArray[Any], identity: IndexArray, labels: str | os.PathLike[str] | None
) -> tuple[IndexArray, tuple[str, ...]]:
    table = read_table(Path(str(labels)))
    if table.shape[1] < 2:
        raise InputError(f"{labels} must have two columns, person and label; got {table.shape[1]}.")
    known = dict(zip(table.iloc[:, 0].astype(str), table.iloc[:, 1], strict=True))
    absent = [person for person in people.tolist() if person not in known]
    if absent:
        raise InputError(
            f"{labels} must have a label for every person; got none for {len(absent)}, such as {absent[0]!r}. Add them."
        )
    import pandas

    codes, classes = encode_classes(pandas.Series([known[person] for person in people.tolist()]), str(labels))
    return codes[identity], classes
