"""A Hugging Face dataset saved on disk -> images or texts of the laboratory."""

from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.readers.datasets import bytes_of, check_table, find_column, joining, read_dataset, read_features
from ruler.core.readers.images import decode_image
from ruler.core.registry import Registry
from ruler.data.images.data import ImageData
from ruler.data.images.folder import check_image_size, stack_images
from ruler.data.tables.encoding import encode_classes


def read_image_dataset(
    folder: Path, image_size: tuple[int, int] | None = None, *, progress: bool = False
) -> dict[str, ImageData]:
    """The parts of a dataset with a column of images and a column of labels.

    The images are the column of that type; the labels are the column ``label``, or else the only one of type
    ClassLabel. Images must be stored in the dataset: paths to files elsewhere are not followed.

    Raises:
        InputError: No such columns, images of several sizes, fewer than two classes, or an image_size that is none.
        FileFormatError: An image that cannot be read.
    """
    check_image_size(image_size)
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
    pixels = stack_images([decode_image(bytes_of(cell.as_py(), key), key, image_size) for cell, key in cells], ids)
    declared = features.get(labels, {}).get("names")
    column = table[labels].to_pandas()
    if isinstance(declared, list) and column.dtype.kind in "iu":
        target, classes = column.to_numpy(dtype=np.int64), tuple(map(str, declared))
    else:
        target, classes = encode_classes(column, labels)
    return ImageData(name=name, images=pixels, target=target, classes=classes, ids=np.array(ids))


def read_text_column(folder: Path, column: str | None) -> Any:
    """One column of all parts of a dataset, one part after the other, as a pandas Series.

    Raises:
        InputError: No column named; says which there are.
        UnknownNameError: No such column; says the nearest.
    """
    tables = list(read_dataset(folder).values())
    columns = Registry(f"column of {folder.name}", {name: name for name in tables[0].column_names})
    if column is None:
        raise InputError(f"column must name the texts; got None. {folder.name} has {', '.join(columns)}.")
    pandas = load_optional("pandas", "reading texts")
    with joining(folder):
        return pandas.concat([table[columns[column]].to_pandas() for table in tables], ignore_index=True)
