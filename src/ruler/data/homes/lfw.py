"""Labeled Faces in the Wild: funneled images from the copy that scikit-learn also uses."""

import re
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.progress import track
from ruler.core.readers.images import decode_image
from ruler.data.homes.archive import opened, read_member
from ruler.data.homes.download import RemoteFile, downloaded
from ruler.data.images.data import PixelArray
from ruler.data.images.sets import FaceSet

_ARCHIVE = RemoteFile(
    "https://ndownloader.figshare.com/files/5976015",
    "sha256",
    "b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
    300_000_000,
)
_NAME = re.compile(r"lfw_funneled/([^/]+)/\1_\d{4}\.jpg")
_FEWEST_IMAGES = 10
_MAX_IMAGE_BYTES = 1_000_000
_FACE = slice(70, 195), slice(78, 172)  # the middle of the 250 x 250 photo, as scikit-learn cuts it


def download_lfw(entry: FaceSet, *, progress: bool = False) -> dict[str, npt.NDArray[Any]]:
    """Images of everyone with at least ten of them, cut and halved; people, but no gender: none is published.

    Raises:
        DownloadError: The archive cannot be fetched or has another checksum.
        FileFormatError: The archive holds something else.
    """
    with (
        downloaded(_ARCHIVE, title=entry.title, file=entry.file, progress=progress) as path,
        opened(path) as archive,
    ):
        people = _list_people(archive.getnames())
        files = [(person, name) for person, names in enumerate(people.values()) for name in names]
        reading = track(files, "reading faces", n_items=len(files), is_shown=progress)
        images = [_cut_face(read_member(archive, name, at_most=_MAX_IMAGE_BYTES), name) for _, name in reading]
    if (len(files), len(people)) != (entry.n_images, entry.n_people):
        raise FileFormatError(f"archive of {entry.title} must hold {entry.size}; got {len(files)} of {len(people)}.")
    names = [person.replace("_", " ") for person in people]
    identity = np.array([person for person, _ in files], dtype=np.int64)
    return {"images": np.stack(images), "identity": identity, "names": np.array(names)}


def _list_people(members: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in sorted(members):
        if match := _NAME.fullmatch(name):
            found[match.group(1)].append(name)
    return {person: names for person, names in found.items() if len(names) >= _FEWEST_IMAGES}


def _cut_face(content: bytes, name: str) -> PixelArray:
    from PIL import Image

    photo = decode_image(content, name)
    if photo.shape != (250, 250, 3):
        raise FileFormatError(f"{name} must be 250 x 250; got {photo.shape[0]} x {photo.shape[1]}.")
    return np.asarray(Image.fromarray(np.ascontiguousarray(photo[_FACE])).resize((47, 62)), dtype=np.uint8)
