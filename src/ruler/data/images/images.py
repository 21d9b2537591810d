"""A name, a folder or a file -> images with their classes, to train and to test on."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.readers.datasets import is_dataset_folder
from ruler.data.homes.cifar import download_cifar
from ruler.data.homes.svhn import download_svhn
from ruler.data.huggingface import read_image_dataset
from ruler.data.images.data import ImageData, ImageSplit
from ruler.data.images.files import make_split, read_image_file, write_arrays
from ruler.data.images.folder import find_parts, read_image_folder
from ruler.data.images.sets import IMAGE_SETS
from ruler.data.sources import cached_file, check_exists, find_set, is_path, locate
from ruler.data.tables.split import draw_split
from ruler.data.verification import verify_content

_HOMES = {"cifar10": download_cifar, "cifar100": download_cifar, "svhn": download_svhn}


def load_images(
    name_or_path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    test_fraction: float = 0.2,
    seed: int = 999,
    image_size: tuple[int, int] | None = None,
    progress: bool = False,
) -> ImageSplit:
    """Which images train the models, and which test them?

    A published set is looked for in the data folder, then in the cache, then downloaded into the cache; ``note``
    says which images of it these are. Images of your own come as a folder with one subfolder a class (PNG or
    JPEG), as a Hugging Face dataset saved on disk, or as an ``.npz`` file. Parts named train and test are kept; of one
    part alone a stratified test part is drawn. Subfolders are parts, and theirs the classes, where all are named like
    parts (train, val, test, ...).

    Args:
        name_or_path: Key of a published set (``"cifar10"``, ``"cifar100"``, ``"svhn"``), or a path.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        test_fraction: Share of test images where one part is to be cut in two.
        seed: Of that draw.
        image_size: Height and width that all images are resized to; for your own folder or dataset only.
        progress: Show on stderr, if it is a terminal, how far reading or downloading is.

    Returns:
        ImageSplit of uint8 images, colours in the order red, green, blue.

    Raises:
        UnknownNameError: No such set; says the nearest.
        InputError: A path that is absent, images of several sizes, classes without images, parts other than train and
            test.
        FileFormatError: A file that is no image or cannot be read safely.
        DataMismatchError: A published set in another version.
        DownloadError: The set is not on this machine and cannot be fetched.

    Example:
        >>> load_images("cifar01")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: image set must be one of cifar10, ... Did you mean 'cifar10'? ...
    """
    if is_path(name_or_path, IMAGE_SETS, (".npz",)):
        parts = _read_own(Path(name_or_path), image_size, progress=progress)
        return _as_split(parts, test_fraction, seed)
    entry = find_set(str(name_or_path), IMAGE_SETS)
    if image_size is not None:
        raise InputError(
            f"image_size must be left out for a published set; got {image_size} for {entry.key!r}, whose images are "
            f"{entry.image_shape[0]} x {entry.image_shape[1]}."
        )
    path = locate(entry, None if root is None else Path(root)).path or fetch_images(entry.key, progress=progress)
    found = read_image_file(path, entry.key, entry.classes)
    note = verify_content(entry, found.content_hash, found.train.note, str(path))
    return ImageSplit(train=replace(found.train, note=note), test=replace(found.test, note=note))


def fetch_images(name: str, *, progress: bool = False) -> Path:
    """Download a published set into the cache, whatever is there already.

    Only images that verify are kept: CIFAR-10 must be the very images measured here; the others are marked as the
    first images of the official files, which they are by the published checksum.

    Args:
        name: Key of a published set.
        progress: Show on stderr, if it is a terminal, how far the download is.

    Returns:
        Path of the cached file, cut to the images that the study uses.

    Raises:
        DownloadError: Its home cannot be reached or hands out something else.
        DataMismatchError: The images differ from those measured here, and should not.
    """
    entry = IMAGE_SETS[name]
    arrays = {**_HOMES[entry.key](entry, progress=progress), "note": np.array(entry.home_note)}
    found = make_split(arrays, entry.key, entry.classes, source=entry.origin)
    verify_content(entry, found.content_hash, found.train.note, entry.origin)
    path = cached_file(entry)
    write_arrays(path, arrays)
    return path


def _read_own(path: Path, image_size: tuple[int, int] | None, *, progress: bool) -> dict[str, ImageData]:
    check_exists(path)
    if not path.is_dir():
        if image_size is not None:
            raise InputError(
                f"image_size must be left out for an .npz file; got {image_size}. Resize the arrays in it."
            )
        found = read_image_file(path, path.name)
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
    train_rows, test_rows = draw_split(whole.target, whole.classes, test_fraction=test_fraction, seed=seed)
    return ImageSplit(train=_take(whole, train_rows), test=_take(whole, test_rows))


def _check_parts(parts: list[str], names: list[str]) -> None:
    """No part is left out unsaid."""
    if len(parts) > 1 and sorted(parts) != ["test", "train"]:
        raise InputError(
            f"parts must be train and test, or one alone; got {', '.join(names)}. Rename, merge or remove parts until "
            "they are."
        )


def _take(data: ImageData, rows: npt.NDArray[np.int64]) -> ImageData:
    return replace(data, images=data.images[rows], target=data.target[rows], ids=data.ids[rows])
