"""Where published datasets come from: downloads, bounded and checked, and how they become a table or arrays.

What cannot be reached, or has another checksum, is a `DownloadError`; a file that holds something else a
`FileFormatError`.
"""

import contextlib
import re
import sys
import tarfile
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import DownloadError, FileFormatError, RulerError, WriteError
from ruler.core.files import FAULTS_OF_THE_DISK, cache_folder, writing_safely
from ruler.core.optional import load_optional
from ruler.core.progress import show_progress, track
from ruler.core.readers.arrays import decode_image
from ruler.data.datasets import Dataset, FaceSet, ImageSet, RemoteFile, TabularSet
from ruler.data.types import PixelArray

Arrays = dict[str, npt.NDArray[Any]]
_CHUNK, _TIMEOUT_S = 1 << 20, 60.0
_PIXELS = 32 * 32 * 3
_CIFAR_LABEL_BYTES = {10: 1, 100: 2}  # by number of classes; CIFAR-100: coarse, then fine
_CIFAR_MEMBERS = {
    10: ("cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin"),
    100: ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin"),
}
_FACE_NAME = re.compile(r"lfw_funneled/([^/]+)/\1_\d{4}\.jpg")
_FACE = slice(70, 195), slice(78, 172)  # the middle of the 250 x 250 photo, as scikit-learn cuts it
_FEWEST_FACES = 10
_MAX_FACE_BYTES = 1_000_000
# fmt: off
COVERTYPE_COLUMNS = (
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
    *(f"Wilderness_Area{area}" for area in range(1, 5)),
    *(f"Soil_Type{soil}" for soil in range(1, 41)),
    "Cover_Type",
)
# fmt: on


class _Limit:
    """A progress bar in pooch's form that stops a download which grows too large: pooch itself has no bound."""

    def __init__(self, max_bytes: int, advance: Callable[[float], None]) -> None:
        self._max_bytes, self._advance, self._n_bytes = max_bytes, advance, 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "total" and value > self._max_bytes:
            raise ValueError(f"{value} bytes, more than the {self._max_bytes} that are expected")
        super().__setattr__(name, value)

    def update(self, n_bytes: int) -> None:
        """Count a chunk, which pooch has written already; the last one may be shorter than it says."""
        if self._n_bytes >= self._max_bytes:
            raise ValueError(f"more than the {self._max_bytes} bytes that are expected")
        self._n_bytes += n_bytes
        self._advance(n_bytes)

    def reset(self) -> None:
        """Start anew, as pooch does at the end to count the whole file at once."""
        self._n_bytes, self._advance = 0, lambda _: None

    def close(self) -> None:
        """Do nothing: whoever opened the bar closes it."""


@contextlib.contextmanager
def downloaded(remote: RemoteFile, dataset: Dataset, *, progress: bool = False) -> Iterator[Path]:
    """Fetch a file into the cache, check it, and remove it again after use.

    Yields:
        Path of the complete file with the published checksum.
    """
    pooch = load_optional("pooch", "downloading a dataset")
    pooch.get_logger().setLevel("WARNING")
    with making_aside() as folder:
        try:
            with show_progress(f"Fetching {dataset.title}", remote.max_bytes, is_shown=progress) as advance:
                fetch = pooch.HTTPDownloader(
                    progressbar=_Limit(remote.max_bytes, advance),
                    chunk_size=_CHUNK,
                    timeout=_TIMEOUT_S,
                    headers={"User-Agent": "ruler-audit", "Accept-Encoding": "identity"},
                )
                path = pooch.retrieve(remote.url, remote.checksum, fname="file", path=folder, downloader=fetch)
        except (OSError, ValueError) as error:
            raise explain(error, dataset, remote.url) from error
        yield Path(path)


@contextlib.contextmanager
def making_aside() -> Iterator[str]:
    """A folder in the cache for what is not verified yet; it is removed at the end."""
    with writing_safely(cache_folder()):
        cache_folder().mkdir(parents=True, exist_ok=True)
        aside = tempfile.TemporaryDirectory(prefix=".download-", dir=cache_folder(), ignore_cleanup_errors=True)
    with aside as folder:
        yield folder


def explain(error: Exception, dataset: Dataset, origin: str) -> RulerError:
    """What to raise for a failed download: a fault of the disk, or of the connection."""
    if isinstance(error, OSError) and error.errno in FAULTS_OF_THE_DISK:
        return WriteError(
            f"{cache_folder()} must be writable; got: {error.strerror}. "
            "Free some space there, or name another folder with RULER_CACHE."
        )
    return DownloadError(
        f"{dataset.title} must come from {origin}; got {type(error).__name__}: {error}. Check the "
        f"connection, or put {dataset.file} into the folder that RULER_DATA names."
    )


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """A gzipped tar archive, to be read in memory: nothing is ever unpacked onto the disk."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, OSError) as error:
        raise FileFormatError(f"{path.name} must be a gzipped tar archive; got a broken one ({error}).") from error


def read_member(archive: tarfile.TarFile, name: str, *, at_most: int) -> bytes:
    """The first ``at_most`` bytes of a plain file in the archive."""
    try:
        member = archive.getmember(name)
    except KeyError:
        raise FileFormatError(f"archive must hold {name}; got none of that name.") from None
    stream = archive.extractfile(member) if member.isreg() else None  # a link could point anywhere
    if stream is None:
        raise FileFormatError(f"{name} must be a plain file in the archive; got a link or folder.")
    with stream:
        return stream.read(at_most)


def download_openml(dataset: TabularSet, progress: bool = False) -> Any:
    """Fetch one table from OpenML.

    Returns:
        DataFrame in the form of the files: target last, text plain, missing values empty.
    """
    datasets = load_optional("sklearn.datasets", "downloading a dataset")
    if progress:
        print(f"Fetching {dataset.title} ({dataset.origin}) ...", file=sys.stderr)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # retries and retired versions: the content is verified anyway
            answer = datasets.fetch_openml(
                data_id=dataset.openml_id,
                as_frame=True,
                parser="pandas",
                data_home=cache_folder() / "openml",
                read_csv_kwargs={"dtype": str},  # the text as published: no number is parsed and printed again
            )
    except (OSError, ValueError, LookupError) as error:
        raise explain(error, dataset, dataset.origin) from error
    return normalise_openml(answer.data, answer.target, dataset)


def normalise_openml(features: Any, target: Any, dataset: TabularSet) -> Any:
    """Undo what OpenML does to a table: categorical types, quotes, numbered names, ``?`` for a missing value.

    ``features`` are a DataFrame of text or categories as scikit-learn hands it out, ``target`` a Series of labels. The
    answer, written and read again, equals the file of the dataset.
    """
    table = features.copy()
    table.columns = [str(name).rstrip(":") for name in features.columns]
    if len(dataset.openml_names) == len(table.columns):
        table.columns = list(dataset.openml_names)
    table["target" if "class" in table.columns else "class"] = target.to_numpy(dtype=object)
    for name in table.columns:
        plain = table[name].astype(object).map(lambda value: str(value).strip().strip("'"), na_action="ignore")
        table[name] = plain.fillna("?") if dataset.is_question_mark_a_category else plain.where(plain != "?", None)
    return table


def download_covertype(dataset: TabularSet, progress: bool = False) -> Any:
    """Covertype as the UCI repository publishes it, from the copy that scikit-learn also uses.

    Returns:
        DataFrame with named columns, the cover type last, rows in the published order.
    """
    pandas = load_optional("pandas", "reading a table")
    with downloaded(dataset.files[0], dataset, progress=progress) as path:
        try:
            table = pandas.read_csv(path, header=None, compression="gzip")
        except (OSError, EOFError, ValueError) as error:
            raise FileFormatError(f"file of {dataset.title} must be a gzipped CSV; got another ({error}).") from error
    if table.shape[1] != len(COVERTYPE_COLUMNS):
        raise FileFormatError(f"{dataset.title} must have {len(COVERTYPE_COLUMNS)} columns; got {table.shape[1]}.")
    table.columns = list(COVERTYPE_COLUMNS)
    return table


def download_cifar(dataset: ImageSet, progress: bool = False) -> Arrays:
    """The first training and test images in the official order, from the binary archive; the Python one is a pickle."""
    arrays: Arrays = {}
    with downloaded(dataset.files[0], dataset, progress=progress) as path, open_archive(path) as archive:
        members = _CIFAR_MEMBERS[len(dataset.classes)]
        for part, member, n_images in zip(("train", "test"), members, (dataset.n_train, dataset.n_test), strict=True):
            size = n_images * (_CIFAR_LABEL_BYTES[len(dataset.classes)] + _PIXELS)
            images, labels = parse_cifar(read_member(archive, member, at_most=size), n_images)
            arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    return arrays


def parse_cifar(content: bytes, n_images: int) -> tuple[PixelArray, npt.NDArray[np.int64]]:
    """Images (n, 32, 32, 3) and classes of one binary batch: label bytes, then red, green and blue planes."""
    n_label_bytes, rest = divmod(len(content) - n_images * _PIXELS, n_images)
    if rest or n_label_bytes not in _CIFAR_LABEL_BYTES.values():
        raise FileFormatError(f"batch must hold {n_images} images; got {len(content)} bytes.")
    records = np.frombuffer(content, dtype=np.uint8).reshape(n_images, n_label_bytes + _PIXELS)
    images = records[:, n_label_bytes:].reshape(n_images, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, n_label_bytes - 1].astype(np.int64)


def download_svhn(dataset: ImageSet, progress: bool = False) -> Arrays:
    """The first digits of the official training and test crops."""
    arrays: Arrays = {}
    sizes = (dataset.n_train, dataset.n_test)
    for part, file, n_images in zip(("train", "test"), dataset.files, sizes, strict=True):
        with downloaded(file, dataset, progress=progress) as path:
            images, labels = read_svhn(path, n_images)
        arrays |= {f"{part}_images": images, f"{part}_labels": labels}
    return arrays


def read_svhn(path: Path, n_images: int) -> tuple[PixelArray, npt.NDArray[np.int64]]:
    """The first images (n, 32, 32, 3) and digits of a MATLAB file, where 10 stands for the digit 0."""
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


def download_lfw(dataset: FaceSet, progress: bool = False) -> Arrays:
    """Images of everyone with at least ten of them, cut and halved; people, but no gender: none is published."""
    found: dict[str, list[str]] = defaultdict(list)
    with downloaded(dataset.files[0], dataset, progress=progress) as path, open_archive(path) as archive:
        for name in sorted(archive.getnames()):
            if match := _FACE_NAME.fullmatch(name):
                found[match.group(1)].append(name)
        people = {person: names for person, names in found.items() if len(names) >= _FEWEST_FACES}
        files = [(person, name) for person, names in enumerate(people.values()) for name in names]
        reading = track(files, "reading faces", n_items=len(files), is_shown=progress)
        images = [_cut_face(read_member(archive, name, at_most=_MAX_FACE_BYTES), name) for _, name in reading]
    if (len(files), len(people)) != (dataset.n_images, dataset.n_people):
        raise FileFormatError(
            f"archive of {dataset.title} must hold {dataset.size}; got {len(files)} of {len(people)}."
        )
    names = [person.replace("_", " ") for person in people]
    identity = np.array([person for person, _ in files], dtype=np.int64)
    return {"images": np.stack(images), "identity": identity, "names": np.array(names)}


def _cut_face(content: bytes, name: str) -> PixelArray:
    image: Any = load_optional("PIL.Image", "reading images")
    photo = decode_image(content, name)
    if photo.shape != (250, 250, 3):
        raise FileFormatError(f"{name} must be 250 x 250; got {photo.shape[0]} x {photo.shape[1]}.")
    return np.asarray(image.fromarray(np.ascontiguousarray(photo[_FACE])).resize((47, 62)), dtype=np.uint8)
