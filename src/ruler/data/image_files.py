"""A folder with one subfolder per class, or a Hugging Face dataset saved on disk -> images."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.progress import track
from ruler.core.readers.arrays import decode_image, list_images
from ruler.core.readers.datasets import bytes_of, check_table, find_column, read_dataset, read_features
from ruler.data.encoding import encode_classes
from ruler.data.types import ImageData, PixelArray

_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def read_image_folder(folder: Path, image_size: tuple[int, int] | None = None, *, progress: bool = False) -> ImageData:
    """Read PNG and JPEG files, one subfolder per class; hidden files and other suffixes are passed over.

    Args:
        folder: Its subfolders are the classes, in sorted order.
        image_size: Height and width that all images are resized to.
        progress: Show on stderr how far reading is.

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

    Raises:
        InputError: No such columns, images of several sizes, fewer than two classes, or an image_size that is none.
        FileFormatError: An image that cannot be read.
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
    stacked: npt.NDArray[np.uint8] = np.stack(images)
    return stacked
