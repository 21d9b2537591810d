"""CIFAR-10 and CIFAR-100 from the binary archives of their authors (the Python ones are pickles)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.data.homes.archive import opened, read_member
from ruler.data.homes.download import RemoteFile, downloaded
from ruler.data.images.sets import ImageSet

_SITE = "https://www.cs.toronto.edu/~kriz"
_PIXELS = 32 * 32 * 3
_ARCHIVES = {
    "cifar10": RemoteFile(f"{_SITE}/cifar-10-binary.tar.gz", "md5", "c32a1d4ab5d03f1284b67883e8d87530", 180_000_000),
    "cifar100": RemoteFile(f"{_SITE}/cifar-100-binary.tar.gz", "md5", "03b5dce01913d631647c71ecec9e9cb8", 180_000_000),
}
_MEMBERS = {
    "cifar10": ("cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin"),
    "cifar100": ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
}
_LABEL_BYTES = {"cifar10": 1, "cifar100": 2}  # CIFAR-100: coarse, then fine


def download_cifar(entry: ImageSet, *, progress: bool = False) -> dict[str, npt.NDArray[Any]]:
    """The first training and test images in the official order.

    Raises:
        DownloadError: The archive cannot be fetched or has another checksum.
        FileFormatError: The archive holds something else.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    train, test = _MEMBERS[entry.key]
    with (
        downloaded(_ARCHIVES[entry.key], title=entry.title, file=entry.file, progress=progress) as path,
        opened(path) as archive,
    ):
        for part, member, n_images in (("train", train, entry.n_train), ("test", test, entry.n_test)):
            size = n_images * (_LABEL_BYTES[entry.key] + _PIXELS)
            images, labels = parse_batch(read_member(archive, member, at_most=size), n_images)
            arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    return arrays


def parse_batch(content: bytes, n_images: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and classes of one binary batch: label bytes, then red, green and blue planes.

    Raises:
        FileFormatError: Fewer images than promised.
    """
    n_label_bytes, rest = divmod(len(content) - n_images * _PIXELS, n_images)
    if rest or n_label_bytes not in _LABEL_BYTES.values():
        raise FileFormatError(f"batch must hold {n_images} images; got {len(content)} bytes.")
    records = np.frombuffer(content, dtype=np.uint8).reshape(n_images, n_label_bytes + _PIXELS)
    images = records[:, n_label_bytes:].reshape(n_images, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, n_label_bytes - 1].astype(np.int64)
