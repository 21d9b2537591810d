"""A name, a folder or a file -> images with their classes, to train and to test on."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError
from ruler.core.files import writing_atomically
from ruler.core.progress import track
from ruler.core.readers.arrays import decode_image, list_images
from ruler.core.readers.datasets import (
    bytes_of,
    check_table,
    find_column,
    is_dataset_folder,
    read_dataset,
    read_features,
)
from ruler.data.datasets import ImageSet
from ruler.data.sources import check_exists, find_home, locate, read_arrays, resolve
from ruler.data.split import draw_split
from ruler.data.tables import encode_classes
from ruler.data.types import ImageData, ImageSplit, PixelArray

_FIELDS = ("train_images", "train_labels", "test_images", "test_labels")
_MOST_CLASSES = 1_000_000  # classes without names get one each: a single label must not fill the memory
_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def load_images(
    source: str | os.PathLike[str] | ImageSet,
    *,
    root: str | os.PathLike[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 999,
    image_size: tuple[int, int] | None = None,
    progress: bool = False,
) -> ImageSplit:
    """Which images train the models, and which test them?

    A published dataset is looked for in the data folder, then in the cache, then downloaded into the cache; ``note``
    says which images of it these are. Images of your own come as a folder with one subfolder per class (PNG or
    JPEG), as a Hugging Face dataset saved on disk, or as an ``.npz`` file. Parts named train and test are kept; of one
    part alone a stratified test part is drawn. Subfolders are parts, and theirs the classes, where all are named like
    parts (train, val, test, ...).

    Args:
        source: Key of a dataset (``"cifar10"``, ``"cifar100"``, ``"svhn"``), a dataset, or a path.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        test_fraction: Share of test images where one part is to be cut in two.
        seed: Of that draw.
        image_size: Height and width that all images are resized to; for your own folder or dataset only.
        progress: Show on stderr how far reading or downloading is.

    Returns:
        ImageSplit of uint8 images, colours in the order red, green, blue.

    Raises:
        UnknownNameError: No such dataset; says the nearest.
        InputError: A path that is absent, images of several sizes, classes without images, parts other than train and
            test.
        FileFormatError: A file that is no image or cannot be read safely.
        DataMismatchError: A dataset in another version.
        DownloadError: The dataset is not on this machine and cannot be fetched.

    Example:
        >>> load_images("cifar01")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: images dataset must be one of cifar10, ... Did you mean 'cifar10'? ...
    """
    dataset = resolve(source, ImageSet, (".npz",))
    if isinstance(dataset, Path):
        return _as_split(_read_own(dataset, image_size, progress=progress), test_fraction, seed)
    if image_size is not None:
        raise InputError(
            f"image_size must be omitted for a dataset with a name; got {image_size} for {dataset.key!r}, whose "
            f"images are {dataset.image_shape[0]} x {dataset.image_shape[1]}."
        )
    if dataset.read is not None:
        found, origin = dataset.read(), dataset.origin
    else:
        path = locate(dataset, root).path or fetch_images(dataset, progress=progress)
        origin = str(path)
        found = make_split(read_arrays(path, _FIELDS), dataset.key, dataset.classes, origin=origin)
    note = dataset.verify(found.content_hash, found.train.note, origin)
    return ImageSplit(train=replace(found.train, note=note), test=replace(found.test, note=note))


def fetch_images(dataset: ImageSet, *, progress: bool = False) -> Path:
    """Download images into the cache, whatever is there already, cut to those that the study uses, if they verify.

    CIFAR-10 must be the very images measured here; the others are marked as the first images of the official files,
    which they are by the published checksum.
    """
    path, download = find_home(dataset)
    arrays = {**download(dataset, progress), "note": np.array(dataset.home_note)}
    found = make_split(arrays, dataset.key, dataset.classes, origin=dataset.origin)
    dataset.verify(found.content_hash, found.train.note, dataset.origin)
    write_arrays(path, arrays)
    return path


def make_split(
    arrays: dict[str, npt.NDArray[Any]], name: str, classes: tuple[str, ...] = (), *, origin: str
) -> ImageSplit:
    """The arrays of one ``.npz`` as images to train and to test on.

    Args:
        arrays: ``train_images`` (n, height, width, channels) uint8, ``train_labels`` (n,), ``test_images``,
            ``test_labels``; ``label_names`` if the classes have names, and ``note`` if there is something that a
            reader of the numbers must know.
        name: What the images are called.
        classes: Names of the classes, where they are known beforehand.
        origin: Where the arrays are from, for errors.
    """
    largest = 0
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        largest = max(largest, int(labels.max(initial=0))) if labels.dtype.kind in "iu" else _MOST_CLASSES
        if images.ndim != 4 or labels.ndim != 1 or largest >= _MOST_CLASSES:
            raise FileFormatError(
                f"{origin} ({part}) must hold images (n, height, width, channels) and a class each, a whole number "
                f"below {_MOST_CLASSES:,}; got shape {images.shape} and {labels.dtype} of shape {labels.shape}. "
                "Save them so."
            )
    if not classes:
        known = arrays.get("label_names", np.arange(largest + 1))
        classes = tuple(map(str, known.ravel().tolist()))
    train, test = (
        ImageData(
            name=name,
            images=arrays[f"{part}_images"],
            target=arrays[f"{part}_labels"].astype(np.int64),
            classes=classes,
            ids=np.array([f"{part}/{row}" for row in range(len(arrays[f"{part}_images"]))]),
            note=str(arrays.get("note", "")),
        )
        for part in ("train", "test")
    )
    return ImageSplit(train=train, test=test)


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write an ``.npz`` whole or not at all."""
    with writing_atomically(path) as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def _read_own(path: Path, image_size: tuple[int, int] | None, *, progress: bool) -> dict[str, ImageData]:
    check_exists(path)
    if not path.is_dir():
        if image_size is not None:
            raise InputError(f"image_size must be omitted for an .npz file; got {image_size}. Resize the arrays in it.")
        found = make_split(read_arrays(path, _FIELDS), path.name, origin=str(path))
        return {"train": found.train, "test": found.test}
    if is_dataset_folder(path):
        return read_image_dataset(path, image_size, progress=progress)
    parts = find_parts(path)
    if not parts:
        return {"all": read_image_folder(path, image_size, progress=progress)}
    _check_parts(list(parts.values()), list(parts))
    return {part: read_image_folder(path / name, image_size, progress=progress) for name, part in parts.items()}


def _as_split(parts: dict[str, ImageData], test_fraction: float, seed: int) -> ImageSplit:
    _check_parts(list(parts), list(parts))
    if len(parts) > 1:
        train, test = parts["train"], parts["test"]
        shapes = train.images.shape[1:], test.images.shape[1:]
        if train.classes != test.classes or shapes[0] != shapes[1]:
            raise InputError(
                f"train and test part of {train.name} must have the same classes and image size; got "
                f"{len(train.classes)} classes of {shapes[0]} and {len(test.classes)} of {shapes[1]}. "
                "Give image_size, and the same subfolders in both."
            )
        return ImageSplit(train=train, test=test)
    (whole,) = parts.values()
    train, test = (
        replace(whole, images=whole.images[rows], target=whole.target[rows], ids=whole.ids[rows])
        for rows in draw_split(whole.target, whole.classes, test_fraction=test_fraction, seed=seed)
    )
    return ImageSplit(train=train, test=test)


def _check_parts(parts: list[str], names: list[str]) -> None:
    """Refuse parts that nothing would be done with."""
    if len(parts) > 1 and sorted(parts) != ["test", "train"]:
        raise InputError(
            f"parts must be train and test, or one alone; got {', '.join(names)}. Rename, merge or remove parts until "
            "they are."
        )


def read_image_folder(folder: Path, image_size: tuple[int, int] | None = None, *, progress: bool = False) -> ImageData:
    """Read PNG and JPEG files, one subfolder per class; hidden files and other suffixes are passed over.

    Returns:
        ImageData, its ids the paths within the folder.

    Raises:
        InputError: No such folder, fewer than two classes, a class without images, images of several sizes, an
            image_size that is none.
        FileFormatError: A file that is not the image it claims to be.
    """
    _check_image_size(image_size)
    if not folder.is_dir():
        raise InputError(f"path must be an existing folder; got {str(folder)!r}. Check the spelling.")
    classes = _list_subfolders(folder)
    if len(classes) < 2:
        raise InputError(
            f"{folder} must have at least two subfolders, one per class; got {len(classes)}. Sort the images into them."
        )
    files = [list_images(folder / name) for name in classes]
    paths = [path for found in files for path in found]
    ids = [path.relative_to(folder).as_posix() for path in paths]
    reading = track(paths, "reading images", n_items=len(paths), is_shown=progress)
    images = _stack([decode_image(path.read_bytes(), str(path), image_size) for path in reading], ids)
    target = np.repeat(np.arange(len(classes)), [len(found) for found in files])
    return ImageData(name=folder.name, images=images, target=target, classes=tuple(classes), ids=np.array(ids))


def read_image_dataset(
    folder: Path, image_size: tuple[int, int] | None = None, *, progress: bool = False
) -> dict[str, ImageData]:
    """The parts of a Hugging Face dataset with a column of images and a column of labels.

    The images are the column of that type; the labels are the column ``label``, or else the only one of type
    ClassLabel. Images must be stored in the dataset: paths to files elsewhere are not followed.
    """
    _check_image_size(image_size)
    return {
        part: _read_images(table, f"{folder.name}/{part}", image_size, is_shown=progress)
        for part, table in read_dataset(folder).items()
    }


def _read_images(table: Any, name: str, image_size: tuple[int, int] | None, *, is_shown: bool) -> ImageData:
    check_table(table, name)
    features = read_features(table)
    images = find_column(table, features, "Image", "image", name)
    labels = find_column(table, features, "ClassLabel", "label", name)
    ids = [f"{name}/{row}" for row in range(table.num_rows)]
    cells = zip(track(table[images], "reading images", n_items=table.num_rows, is_shown=is_shown), ids, strict=True)
    pixels = _stack([decode_image(bytes_of(cell.as_py(), key), key, image_size) for cell, key in cells], ids)
    declared = features.get(labels, {}).get("names")
    column = table[labels].to_pandas()
    if isinstance(declared, list) and column.dtype.kind in "iu":
        target, classes = column.to_numpy(dtype=np.int64), tuple(map(str, declared))
    else:
        target, classes = encode_classes(column, labels)
    return ImageData(name=name, images=pixels, target=target, classes=classes, ids=np.array(ids))


def find_parts(folder: Path) -> dict[str, str]:
    """The parts of a dataset, such as train and test, that a folder's subfolders are; none where these are classes.

    They are parts where all are named like parts, in any case, or where two of them are named train and test.

    Returns:
        By subfolder the part that it is: ``"train"``, ``"validation"``, ``"test"``, or else its own name.
    """
    names = _list_subfolders(folder)
    are_parts = all(name.lower() in _PARTS for name in names) or {"train", "test"} <= set(names)
    return {name: _PARTS.get(name.lower(), name) for name in names} if are_parts else {}


def _list_subfolders(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _check_image_size(image_size: Any) -> None:
    sides = list(image_size) if isinstance(image_size, (tuple, list, np.ndarray)) else []
    are_whole = all(isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in sides)
    if image_size is not None and not (len(sides) == 2 and are_whole and min(sides) >= 1):
        raise InputError(
            f"image_size must be height and width, two whole numbers of at least 1; got {image_size!r}. "
            "Give (32, 32), for example."
        )


def _stack(images: list[PixelArray], names: list[str]) -> PixelArray:
    """All images in one array; InputError if they have several sizes."""
    shapes: dict[tuple[int, ...], str] = {}
    for image, name in zip(images, names, strict=True):
        shapes.setdefault(image.shape, name)
    if len(shapes) > 1:
        (a, first), (b, second) = list(shapes.items())[:2]
        raise InputError(
            f"images must all have one size; got {a[0]} x {a[1]} ({first}) and {b[0]} x {b[1]} ({second}). "
            "Give image_size=(height, width) to resize them."
        )
    return np.stack(images)
