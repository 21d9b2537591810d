"""Arrays, tensors and images in files: .npy, .npz, .pt, .pth, PNG and JPEG. Pickled objects are refused, not opened."""

import io
import math
import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.safety import check_unfolded_size, limit, reading_safely

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_MOST_HEADER_BYTES = 1 << 16
_AGAIN = "Write it again."
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")


def open_npy(path: Path) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file, memory-mapped."""
    with reading_safely(path):
        with path.open("rb") as stream:  # NumPy takes memory for a header of any length that is claimed
            major, _ = np.lib.format.read_magic(stream)
            n_bytes = int.from_bytes(stream.read(2 if major == 1 else 4), "little")
        if n_bytes > _MOST_HEADER_BYTES:
            raise FileFormatError(f"{path} must have a header of some hundred bytes; it claims {n_bytes:,}. {_AGAIN}")
        array = np.lib.format.open_memmap(path, mode="r")
        if array.dtype.itemsize == 0:  # any number of them fits into no bytes at all
            raise FileFormatError(f"{path} must hold numbers or text; got {array.dtype}, which holds nothing. {_AGAIN}")
        return array


class NpzArrays(Mapping[str, npt.NDArray[Any]]):
    """The arrays of an open ``.npz``, each read when it is asked for; their sizes are checked beforehand."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self._archive = archive
        check_packing(archive, path)
        arrays = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in arrays}
        check_unfolded_size(sum(entry.file_size for entry in self._entries.values()), path)
        self.shapes = {name: self._read_shape(entry, path) for name, entry in self._entries.items()}

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        with self._archive.open(self._entries[name]) as stream:
            return np.lib.format.read_array(stream, allow_pickle=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _read_shape(self, entry: zipfile.ZipInfo, path: Path) -> tuple[int, ...]:
        """The shape that an entry claims, once its size proves that the claim is true."""
        with self._archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            if version not in _HEADERS:
                raise FileFormatError(
                    f"{path} must hold plain arrays; entry {entry.filename!r} is none. Save it again."
                )
            shape, _, dtype = _HEADERS[version](stream)
            if dtype.hasobject:
                raise FileFormatError(
                    f"{path} must hold numbers and text only; entry {entry.filename!r} holds pickled objects, which "
                    "are not opened. Save plain arrays."
                )
            if dtype.itemsize == 0 or math.prod(shape) * dtype.itemsize != entry.file_size - stream.tell():
                raise FileFormatError(
                    f"{path} must hold as many numbers as it claims; entry {entry.filename!r} does not."
                )
        return shape


def check_packing(archive: zipfile.ZipFile, path: Path) -> None:
    """Refuse archives that are packed otherwise than by deflate, or whose entries claim to take more than the file has.

    Both take memory by what the file claims.
    """
    n_bytes = path.stat().st_size
    for entry in archive.infolist():
        if entry.compress_type not in _PACKINGS:
            raise FileFormatError(f"{path} must be stored or deflated; entry {entry.filename!r:.80} is not. {_AGAIN}")
        is_stored = entry.compress_type == zipfile.ZIP_STORED
        if entry.compress_size > n_bytes or (is_stored and entry.compress_size != entry.file_size):
            raise FileFormatError(
                f"{path} must hold what its entries claim; entry {entry.filename!r:.80} claims "
                f"{entry.compress_size:,} bytes of a file of {n_bytes:,}. {_AGAIN}"
            )


@contextmanager
def open_npz(path: Path) -> Iterator[NpzArrays]:
    """The arrays of a ``.npz`` file."""
    with reading_safely(path), zipfile.ZipFile(path) as archive:
        yield NpzArrays(archive, path)


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of a ``.npz`` file, in memory; raises as `open_npz`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "a.npz"
        >>> np.savez(path, inputs=np.eye(2), labels=[0, 1])
        >>> {name: array.shape for name, array in read_npz(path).items()}
        {'inputs': (2, 2), 'labels': (2,)}
    """
    with open_npz(path) as arrays:
        return dict(arrays)


def read_safetensors(path: Path) -> dict[str, Any]:
    """All tensors of a ``.safetensors`` file, on the CPU, by name."""
    safetensors = load_optional("safetensors.torch", "reading .safetensors")
    with reading_safely(path):
        tensors: dict[str, Any] = safetensors.load_file(str(path))
        return tensors


def read_torch(path: Path, *, is_mapped: bool = False) -> Any:
    """The tensors and plain values that ``torch.save`` wrote, on the CPU; nothing in the file is executed.

    Args:
        path: A ``.pt``, ``.pth`` or ``.bin`` file.
        is_mapped: Memory-map the tensors, where the file allows it.
    """
    torch = load_optional("torch", f"reading {path.suffix}")
    with reading_safely(path):
        is_zip = zipfile.is_zipfile(path)
        if is_zip:
            with zipfile.ZipFile(path) as archive:
                check_packing(archive, path)
                check_unfolded_size(sum(entry.file_size for entry in archive.infolist()), path)
                for entry in archive.infolist():  # torch allows to make bytes of any number, which no tensor needs
                    if entry.filename.endswith("data.pkl") and b"bytearray" in archive.read(entry):
                        raise FileFormatError(
                            f"{path} must hold tensors only; got bytes. Save a tensor or a state dict."
                        )
        # from memory, an old file gets no more than it has, whatever length it claims for a text
        source = path if is_zip else io.BytesIO(path.read_bytes())
        try:
            return torch.load(source, map_location="cpu", weights_only=True, mmap=is_mapped and is_zip)
        except pickle.UnpicklingError:
            raise FileFormatError(
                f"{path} must hold tensors only; got a file that is broken or needs pickled code, which is not run. "
                "Save a tensor or a state dict, with torch.save."
            ) from None


def list_images(folder: Path) -> list[Path]:
    """The PNG and JPEG files in a folder and those below it, sorted; hidden files are passed over."""
    found = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    if not found:
        raise InputError(
            f"{folder} must hold at least one image ({', '.join(IMAGE_SUFFIXES)}); got none. Remove it or fill it."
        )
    return found


def decode_image(content: bytes, name: str, image_size: tuple[int, int] | None = None) -> npt.NDArray[np.uint8]:
    """One PNG or JPEG as (height, width, 3) uint8, turned upright as its camera noted, transparency dropped.

    Raises:
        FileFormatError: Not such an image, a broken one, more pixels than the limit, or more than 8 bits per colour.
    """
    pillow: Any = load_optional("PIL.Image", "reading images")
    operations: Any = load_optional("PIL.ImageOps", "reading images")
    try:
        # warnings tell of broken camera notes, which only say which way is up, and of sizes, which are checked here
        with (
            warnings.catch_warnings(action="ignore"),
            pillow.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image,
        ):
            if image.width * image.height > limit("pixels"):
                raise ValueError(f"{image.width} x {image.height} pixels")
            if image.mode not in _MODES:
                raise ValueError(f"mode {image.mode}, more than 8 bits per colour")
            operations.exif_transpose(image, in_place=True)
            upright = image.convert("RGB")
    except Exception as error:  # parsers raise anything
        reason = "not one of the two" if isinstance(error, pillow.UnidentifiedImageError) else error
        raise FileFormatError(
            f"{name} must be a PNG or JPEG image of at most {limit('pixels'):,} pixels and 8 bits per colour; got a "
            f"file that cannot be read ({reason}). Remove or convert it."
        ) from error
    if image_size is not None:
        upright = upright.resize((image_size[1], image_size[0]), pillow.Resampling.BILINEAR)
    return np.asarray(upright, dtype=np.uint8)
