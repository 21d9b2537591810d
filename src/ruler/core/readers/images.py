"""PNG and JPEG files -> arrays of pixels, bounded in size."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.bounds import limit

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr")


def list_images(folder: Path) -> list[Path]:
    """The PNG and JPEG files in a folder and those below it, sorted; hidden files are passed over.

    Raises:
        InputError: None.
    """
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
