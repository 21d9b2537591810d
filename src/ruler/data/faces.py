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
from ruler.core.optional import load_optional
from ruler.core.readers.datasets import is_dataset_folder, only_part
from ruler.core.readers.tables import read_table
from ruler.core.types import IndexArray
from ruler.data.datasets import FaceSet
from ruler.data.images import find_parts, read_image_dataset, read_image_folder, write_arrays
from ruler.data.sources import check_exists, find_home, locate, read_arrays, resolve
from ruler.data.tables import encode_classes
from ruler.data.types import ImageData

_FIELDS = ("images", "identity", "names")
_GENDERS = ("female", "male")


def load_faces(
    source: str | os.PathLike[str] | FaceSet = "lfw",
    *,
    labels: str | os.PathLike[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    image_size: tuple[int, int] | None = None,
    progress: bool = False,
) -> ImageData:
    """Whose face is on each image, and what is a model to say about it?

    ``groups`` are the people. ``target`` is what models are trained on: for LFW the gender (0 female, 1 male). The
    download of LFW brings no gender, and it is not guessed from names: give ``labels``. For a folder of your own with
    one subfolder per person, or a Hugging Face dataset saved on disk and labelled by person, each in one part,
    ``target`` is the person unless ``labels`` say something else.

    Args:
        source: Key of a dataset (``"lfw"``), a dataset, or a path to a folder or Hugging Face dataset, or to an
            ``.npz`` with the arrays images, identity, names and, if known, gender.
        labels: Table (.csv, .csv.gz or .parquet) whose first column is the person and whose second is the label.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        image_size: Height and width that all images are resized to; for your own folder or dataset only.
        progress: Show on stderr how far reading or downloading is.

    Returns:
        ImageData with groups; training and test part are for the caller to cut, by whole people or not.

    Raises:
        UnknownNameError: No such dataset; says the nearest.
        InputError: A path that is absent, images of several sizes, several parts, people without a label, or no
            labels at all.
        FileFormatError: A file that cannot be read safely.
        DataMismatchError: A dataset in another version.
        DownloadError: The dataset is not on this machine and cannot be fetched.

    Example:
        >>> load_faces("lwf")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: faces dataset must be one of lfw; got 'lwf'. Did you mean 'lfw'? ...
    """
    dataset = resolve(source, FaceSet, (".npz",))
    if isinstance(dataset, Path):
        return _load_own(dataset, labels, image_size, progress=progress)
    if image_size is not None:
        raise InputError(f"image_size must be omitted for a dataset with a name; got {image_size} for {dataset.key!r}.")
    if dataset.read is not None:
        found = dataset.read()
        return replace(found, note=dataset.verify(found.content_hash, found.note, dataset.origin))
    path = locate(dataset, root).path or fetch_faces(dataset, progress=progress)
    arrays, note = read_faces(dataset, path)
    return replace(_from_arrays(arrays, dataset.key, labels), note=note)


def read_faces(dataset: FaceSet, path: Path) -> tuple[dict[str, npt.NDArray[Any]], str]:
    """The arrays of a dataset's file and the note that belongs to them; a download has no array ``gender``."""
    arrays = _read_file(path)
    content_hash = _from_arrays(arrays, dataset.key, None).content_hash if "gender" in arrays else "no gender"
    return arrays, dataset.verify(content_hash, str(arrays.get("note", "")), str(path))


def check_gender(dataset: FaceSet) -> None:
    """Check that the copy on this machine says of every face what a study trains on.

    Raises:
        InputError: There is no copy, or one without gender.
        DataMismatchError: Neither the copy measured here nor a download.
        FileFormatError: A file that cannot be read safely.
    """
    path = locate(dataset).path
    if dataset.read is None and (path is None or "gender" not in read_faces(dataset, path)[0]):
        raise InputError(
            f"{dataset.file} must be in the folder that RULER_DATA names or in the cache, with the array gender; got "
            f"{'no file' if path is None else f'{path} without it'}, and no public home has it. Make a table of two "
            f"columns, person and female or male, and run: ruler data fetch {dataset.key} --labels TABLE.csv"
        )


def fetch_faces(dataset: FaceSet, *, labels: str | os.PathLike[str] | None = None, progress: bool = False) -> Path:
    """Download faces into the cache, whatever is there already.

    With ``labels``, a table of person and female or male, the file gets a gender, and images that the cache has are
    not downloaded again.
    """
    path, download = find_home(dataset)
    if labels is None:
        arrays = download(dataset, progress)
    else:
        read_table(Path(labels))  # before a long download
        arrays = _find_cached(dataset, path) or download(dataset, progress)
        people, identity = arrays["names"].astype(str), arrays["identity"].astype(np.int64)
        gender, classes = _label_people(people, identity, labels)
        if classes != _GENDERS:
            raise InputError(f"{labels} must say {' or '.join(_GENDERS)} of each person; got {', '.join(classes)}.")
        arrays = {**arrays, "gender": gender}
    write_arrays(path, {**arrays, "note": np.array(dataset.home_note)})
    return path


def _find_cached(dataset: FaceSet, path: Path) -> dict[str, npt.NDArray[Any]] | None:
    """The download that the cache has; None if it is absent, broken or of another kind."""
    with suppress(RulerError):
        arrays, note = read_faces(dataset, path)
        return arrays if note == dataset.home_note else None
    return None


def _load_own(
    path: Path, labels: str | os.PathLike[str] | None, image_size: tuple[int, int] | None, *, progress: bool
) -> ImageData:
    check_exists(path)
    if not path.is_dir():
        if image_size is not None:
            raise InputError(f"image_size must be omitted for an .npz file; got {image_size}. Resize the arrays in it.")
        return _from_arrays(_read_file(path), path.name, labels)
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


def _read_file(path: Path) -> dict[str, npt.NDArray[Any]]:
    arrays = read_arrays(path, _FIELDS)
    identity, names = arrays["identity"], arrays["names"]
    is_row = identity.ndim == names.ndim == 1 and identity.dtype.kind in "iu"
    if not is_row or identity.min(initial=0) < 0 or identity.max(initial=0) >= len(names):
        raise FileFormatError(
            f"identity in {path} must be rows of names, one per image; got {identity.dtype} of shape {identity.shape} "
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
            f"labels must be {'omitted: the file has a gender' if has_gender else 'given: the file has no gender'}; "
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
    pandas = load_optional("pandas", "reading a table")
    codes, classes = encode_classes(pandas.Series([known[person] for person in people.tolist()]), str(labels))
    return codes[identity], classes
