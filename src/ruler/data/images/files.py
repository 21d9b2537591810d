"""Images in files of arrays: ``.npz`` with a training and a test part."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.files import write_atomically
from ruler.core.readers.arrays import read_npz
from ruler.data.images.data import ImageData, ImageSplit

_FIELDS = ("train_images", "train_labels", "test_images", "test_labels")
_MOST_CLASSES = 1_000_000  # classes without names get one each: a single label must not fill the memory


def read_image_file(path: Path, name: str, classes: tuple[str, ...] = ()) -> ImageSplit:
    """Read training and test images from one ``.npz``.

    Args:
        path: File with the arrays ``train_images`` (n, height, width, channels) uint8, ``train_labels`` (n,),
            ``test_images``, ``test_labels``; ``label_names`` if the classes have names, and ``note`` if there is
            something that a reader of the numbers must know.
        name: What the images are called.
        classes: Names of the classes, where they are known beforehand.

    Raises:
        InputError: No such file, or images and labels that do not fit together.
        FileFormatError: Not an .npz of plain arrays, without one of the four, or with one of another shape or type.
    """
    return make_split(read_npz(path), name, classes, source=str(path))


def make_split(
    arrays: dict[str, npt.NDArray[Any]], name: str, classes: tuple[str, ...] = (), *, source: str
) -> ImageSplit:
    """The four arrays of ``read_image_file`` as one value; ``source`` is where they are from, for errors."""
    absent = [field for field in _FIELDS if field not in arrays]
    if absent:
        raise FileFormatError(
            f"{source} must hold the arrays {', '.join(_FIELDS)}; got none named {', '.join(absent)}. "
            "Save them with numpy.savez_compressed."
        )
    for part in ("train", "test"):
        _check_part(arrays[f"{part}_images"], arrays[f"{part}_labels"], f"{source} ({part})")
    note = str(arrays.get("note", ""))
    names = classes or _name_classes(arrays)
    train, test = (
        _make_part(arrays[f"{part}_images"], arrays[f"{part}_labels"], part=part, name=name, classes=names, note=note)
        for part in ("train", "test")
    )
    return ImageSplit(train=train, test=test)


def write_arrays(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write an ``.npz`` whole or not at all."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_atomically(path, content.getvalue())


def _check_part(images: npt.NDArray[Any], labels: npt.NDArray[Any], source: str) -> None:
    is_class = labels.ndim == 1 and labels.dtype.kind in "iu" and labels.max(initial=0) < _MOST_CLASSES
    if images.ndim != 4 or not is_class:
        raise FileFormatError(
            f"{source} must hold images (n, height, width, channels) and a class each, a whole number below "
            f"{_MOST_CLASSES:,}; got shape {images.shape} and {labels.dtype} of shape {labels.shape}. Save them so."
        )


def _name_classes(arrays: dict[str, npt.NDArray[Any]]) -> tuple[str, ...]:
    if "label_names" in arrays:
        return tuple(map(str, arrays["label_names"].ravel().tolist()))
    largest = max(int(arrays[f"{part}_labels"].max(initial=0)) for part in ("train", "test"))
    return tuple(map(str, range(largest + 1)))


def _make_part(
    images: npt.NDArray[Any], labels: npt.NDArray[Any], *, part: str, name: str, classes: tuple[str, ...], note: str
) -> ImageData:
    ids = np.array([f"{part}/{row}" for row in range(len(images))])
    return ImageData(name=name, images=images, target=labels.astype(np.int64), classes=classes, ids=ids, note=note)
