"""Images with their classes, as values that travel."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import IndexArray

PixelArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images as bytes: image i is record ``ids[i]`` of class ``target[i]``.

    Args:
        name: Key of a published set, or the folder's or file's name.
        images: (n, height, width, channels) uint8.
        target: (n,) classes 0..c-1.
        classes: c labels that the classes stand for.
        ids: (n,) names of the records.
        groups: (n,) who or what each image belongs to, such as a person; None where nothing is known.
        note: What a reader of its numbers must know about these images; mostly nothing.
    """

    name: str
    images: PixelArray
    target: IndexArray
    classes: tuple[str, ...]
    ids: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        _check_images(self)

    def __len__(self) -> int:
        return len(self.target)

    @property
    def content_hash(self) -> str:
        """SHA-256 of shape, images, target and groups: the same on every machine."""
        digest = hashlib.sha256(f"{self.images.shape}".encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.target, dtype="<i8").data)
        if self.groups is not None:
            digest.update("\n".join(map(str, self.groups.tolist())).encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """What models are trained and tested on.

    Args:
        train, test: Images of the two parts, the same classes in both.
    """

    train: ImageData
    test: ImageData

    @property
    def content_hash(self) -> str:
        """SHA-256 of both parts: the same on every machine."""
        return hashlib.sha256(f"{self.train.content_hash}{self.test.content_hash}".encode()).hexdigest()


def _check_images(data: ImageData) -> None:
    n, name = len(data.images), data.name
    if data.images.dtype != np.uint8 or data.images.ndim != 4 or 0 in data.images.shape:
        raise InputError(
            f"images of {name} must be uint8 of shape (n, height, width, channels); got {data.images.dtype} of shape "
            f"{data.images.shape}. Convert them, and keep the channels last."
        )
    groups = data.ids if data.groups is None else data.groups
    if not data.target.shape == data.ids.shape == groups.shape == (n,):
        raise InputError(
            f"target, ids and groups of {name} must be one entry an image, {n}; got {data.target.shape}, "
            f"{data.ids.shape} and {groups.shape}."
        )
    if data.target.dtype.kind not in "iu" or data.target.min() < 0 or data.target.max() >= len(data.classes):
        raise InputError(
            f"target of {name} must be classes from 0 to {len(data.classes) - 1}; got {data.target.dtype} from "
            f"{data.target.min()} to {data.target.max()}."
        )
