"""Street View House Numbers from the cropped digits of its authors."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.data.homes.download import RemoteFile, downloaded
from ruler.data.images.sets import ImageSet

_SITE = "http://ufldl.stanford.edu/housenumbers"
_FILES = {
    "train": RemoteFile(f"{_SITE}/train_32x32.mat", "md5", "e26dedcc434d2e4c54c9b2d4a06d8373", 200_000_000),
    "test": RemoteFile(f"{_SITE}/test_32x32.mat", "md5", "eb5a983be6a315427106f1b164d9cef3", 80_000_000),
}


def download_svhn(entry: ImageSet, *, progress: bool = False) -> dict[str, npt.NDArray[Any]]:
    """The first digits of the official training and test crops.

    Raises:
        DownloadError: A file cannot be fetched or has another checksum.
        FileFormatError: A file holds something else.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    for part, n_images in (("train", entry.n_train), ("test", entry.n_test)):
        title = f"{entry.title} ({part})"
        with downloaded(_FILES[part], title=title, file=entry.file, progress=progress) as path:
            images, labels = read_digits(path, n_images)
        arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    return arrays


def read_digits(path: Path, n_images: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The first images (n, 32, 32, 3) and digits of a MATLAB file, where 10 stands for the digit 0.

    Raises:
        FileFormatError: No such arrays, or fewer images.
    """
    matlab = load_optional("scipy.io.matlab", "reading SVHN")
    try:
        content = matlab.loadmat(path, variable_names=["X", "y"])  # scipy implements no files of version 7.3
        images, labels = content["X"], content["y"].ravel()
    except (OSError, ValueError, KeyError, TypeError, NotImplementedError, matlab.MatReadError) as error:
        raise FileFormatError(f"{path.name} must be a MATLAB file with X and y; got another ({error!r}).") from error
    if images.dtype != np.uint8 or images.shape[:3] != (32, 32, 3) or not n_images <= len(labels) == images.shape[-1]:
        raise FileFormatError(f"X must be 32 x 32 x 3 x at least {n_images}; got {images.shape} and {len(labels)} y.")
    first = np.ascontiguousarray(images[..., :n_images].transpose(3, 0, 1, 2))
    return first, labels[:n_images].astype(np.int64) % 10
