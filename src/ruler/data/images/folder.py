"""A folder with one subfolder a class -> images."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.progress import track
from ruler.core.readers.images import decode_image, list_images
from ruler.data.images.data import ImageData, PixelArray

_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def read_image_folder(folder: Path, image_size: tuple[int, int] | None = None, *, progress: bool = False) -> ImageData:
    """Read PNG and JPEG files, one subfolder a class; hidden files and other suffixes are passed over.

    Args:
        folder: Its subfolders are the classes, in sorted order.
        image_size: Height and width that all images are resized to.
        progress: Show on stderr, if it is a terminal, how far reading is.

    Returns:
        ImageData, its ids the paths within the folder.

    Raises:
        InputError: No such folder, fewer than two classes, a class without images, images of several sizes, an
            image_size that is none.
        FileFormatError: A file that is not the image it claims to be.
    """
    check_image_size(image_size)
    if not folder.is_dir():
        raise InputError(f"path must be an existing folder; got {str(folder)!r}. Check the spelling.")
    classes = _list_subfolders(folder)
    if len(classes) < 2:
        raise InputError(
            f"{folder} must have at least two subfolders, one a class; got {len(classes)}. Sort the images into them."
        )
    files = [list_images(folder / name) for name in classes]
    paths = [path for found in files for path in found]
    ids = [path.relative_to(folder).as_posix() for path in paths]
    reading = track(paths, "reading images", n_items=len(paths), is_shown=progress)
    images = stack_images([decode_image(path.read_bytes(), str(path), image_size) for path in reading], ids)
    target = np.repeat(np.arange(len(classes)), [len(found) for found in files])
    return ImageData(name=folder.name, images=images, target=target, classes=tuple(classes), ids=np.array(ids))


def check_image_size(image_size: Any) -> None:
    """None, or a height and a width in pixels.

    Raises:
        InputError: Anything else.

    Example:
        >>> check_image_size(8)
        Traceback (most recent call last):
        ruler.core.errors.InputError: image_size must be height and width, two whole numbers of at least 1; got 8. ...
    """
    sides = list(image_size) if isinstance(image_size, (tuple, list, np.ndarray)) else []
    are_whole = all(isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in sides)
    if image_size is not None and not (len(sides) == 2 and are_whole and min(sides) >= 1):
        raise InputError(
            f"image_size must be height and width, two whole numbers of at least 1; got {image_size!r}. "
            "Give (32, 32), for example."
        )


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


def stack_images(images: list[PixelArray], names: list[str]) -> PixelArray:
    """All images in one array.

    Raises:
        InputError: Images of several sizes.
    """
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
