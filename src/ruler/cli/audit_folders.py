"""Folders that `save_pretrained` wrote, and files of texts or images -> models and what they are fed."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.cli.audit_records import load_arrays, read_safely, shorten
from ruler.core.errors import CheckpointError, FileFormatError
from ruler.core.progress import track

_UNLIMITED_TOKENS = 1 << 20
_LONGEST_FIELD = (1 << 31) - 1  # what csv takes for a limit on every machine


def load_folder(folder: Path, name: str) -> Any:
    """The transformers model in a folder, whole and as it was saved; nothing in the folder is executed.

    Args:
        folder: As ``save_pretrained`` writes it, with weights as ``.safetensors``.
        name: Which model, for errors.

    Raises:
        FileFormatError: Not such a folder, or one that cannot be read safely.
        CheckpointError: Weights that are missing or do not fit.
    """
    from ruler.core.readers.pretrained import load_pretrained

    if folder.is_file():
        raise FileFormatError(
            f"models.{name} must be a folder that save_pretrained wrote; got the file {folder}. "
            "For a checkpoint, name the function that builds the model, as models.factory."
        )
    model, lacking = load_pretrained(folder)
    if lacking:
        raise CheckpointError(
            f"{folder} must hold all weights of the {name} model; {len(lacking)} are missing, such as "
            f"{min(lacking)}. Save the model again with save_pretrained."
        )
    return model


@dataclass(frozen=True, eq=False)
class FolderRecords:
    """Records as a model's own tokenizer or image processor, saved beside it, prepares them.

    Args:
        folder: Of the model.
        model: As `load_folder` gives it.
        columns: What tables of texts call ``label`` and ``strata``, where they call them otherwise.
    """

    folder: Path
    model: Any
    columns: Mapping[str, str | None] = field(default_factory=dict)

    def load(self, path: Path) -> Any:
        """Records of one side, as `embed` takes them. Texts longer than the model reads are cut.

        Args:
            path: ``.csv`` or ``.jsonl`` with a column ``text`` and, if known, ``label`` (a number or the name of a
                class), ``id``, ``group`` (whose record it is) and ``strata`` (what to match held-out records on). A
                folder of PNG and JPEG images, in subfolders named as the classes if those are known. A Hugging Face
                dataset saved on disk, in one part, with a column of images or ``text`` and, if known, ``label`` and
                ``id``. Or ``.npy``, or ``.npz`` with ``inputs`` and, if known, ``labels``, ``ids``, ``groups`` and
                ``strata``: images (n, height, width, channels) of uint8 are prepared, other numbers are fed as they
                are.

        Raises:
            InputError: A folder without images, or a dataset without the column that the model reads.
            FileFormatError: Nothing there, another ending, records that cannot be read, a label that is no class of the
                model, images within and without class folders, or a model without its tokenizer or image processor.
        """
        from ruler.core.readers.datasets import is_dataset_folder

        if path.is_dir():
            return self._load_dataset(path) if is_dataset_folder(path) else self._load_image_folder(path)
        if not path.exists():
            raise FileFormatError(f"{path} must be a file or folder of records; got nothing there. Check the path.")
        if path.suffix.lower() in (".csv", ".jsonl"):
            return self._encode_texts(read_safely(_read_table, path), path)
        if path.suffix.lower() not in (".npy", ".npz"):
            raise FileFormatError(
                f"{path} must be a .csv or .jsonl file of texts, a folder of images, a Hugging Face dataset saved on "
                f"disk, or a .npy or .npz file of inputs; got {path.suffix or 'no ending'!r}."
            )
        arrays = load_arrays(path)
        inputs = arrays["inputs"]
        if inputs.dtype == np.uint8 and inputs.ndim == 4:
            inputs = self._prepare_images(inputs, n_images=len(inputs))
        return {self.model.main_input_name: inputs, **{name: arrays[name] for name in arrays if name != "inputs"}}

    def _load_dataset(self, folder: Path) -> Any:
        from ruler.core.readers.datasets import read_records
        from ruler.core.readers.images import decode_image

        is_of_images = self.model.main_input_name == "pixel_values"
        rows = [self._name_class(row) for row in read_records(folder, "image" if is_of_images else "text")]
        if not is_of_images:
            return self._encode_texts(rows, folder)
        images = (decode_image(row["image"], f"image {number} of {folder}") for number, row in enumerate(rows))
        records = {self.model.main_input_name: self._prepare_images(images, n_images=len(rows))}
        if "id" in rows[0]:
            records["id"] = np.array([row["id"] for row in rows])
        if "label" in rows[0]:
            records["labels"] = np.array([self._find_class(row["label"], folder) for row in rows])
        return records

    def _name_class(self, row: dict[str, Any]) -> dict[str, Any]:
        """A dataset's names count, unless the model has none of its own: then its classes go by the numbers."""
        unnamed = {f"LABEL_{number}": number for number in range(int(self.model.config.num_labels))}
        return row if "class" not in row or self.model.config.label2id == unnamed else {**row, "label": row["class"]}

    def _encode_texts(self, rows: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
        from ruler.core.readers.pretrained import load_tokenizer

        _check_texts(rows, path)
        for name, column in self.columns.items():
            if column is not None and column not in rows[0]:
                raise FileFormatError(
                    f"{path} must have the column {column!r}, as data.{name} says; got {', '.join(map(str, rows[0]))}."
                )
        label, strata = self.columns.get("label") or "label", self.columns.get("strata") or "strata"
        tokenizer = load_tokenizer(self.folder)
        longest = min(tokenizer.model_max_length, self._count_positions())
        encoding = tokenizer([row["text"] for row in rows], truncation=True, max_length=longest)
        records = [{key: column[place] for key, column in encoding.items()} for place in range(len(rows))]
        for record, row in zip(records, rows, strict=True):
            if label in row:
                record["labels"] = self._find_class("" if row[label] is None else str(row[label]), path)
            for key, column in (("id", "id"), ("group", "group"), ("strata", strata)):
                if column in row:
                    record[key] = row[column]
        return records

    def _count_positions(self) -> int:
        """Tokens that the model can read; those of RoBERTa's kind start to count after the padding's number."""
        n_positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        if n_positions <= 0:  # XLNet, which counts from token to token, says -1
            return _UNLIMITED_TOKENS
        tables = (part for name, part in self.model.named_modules() if name.endswith("position_embeddings"))
        padding = next((part.padding_idx for part in tables if getattr(part, "padding_idx", None) is not None), -1)
        return int(n_positions - padding - 1)

    def _load_image_folder(self, folder: Path) -> dict[str, Any]:
        from ruler.core.readers.images import decode_image, list_images

        paths = list_images(folder)
        images = (decode_image(path.read_bytes(), str(path)) for path in paths)
        places = [path.relative_to(folder) for path in paths]
        has_classes = any(len(place.parts) > 1 for place in places)
        outside = [place.name for place in places if len(place.parts) == 1]
        if has_classes and outside:
            raise FileFormatError(
                f"{folder} must hold its images either all in subfolders, one per class, or all directly; got both, "
                f"such as {outside[0]} beside subfolders. Move them."
            )
        records = {
            self.model.main_input_name: self._prepare_images(images, n_images=len(paths)),
            "id": np.array([place.as_posix() for place in places]),
        }
        if has_classes:
            records["labels"] = np.array([self._find_class(place.parts[0], folder) for place in places])
        return records

    def _find_class(self, label: str, path: Path) -> int:
        classes: dict[str, int] = self.model.config.label2id or {}
        is_number = label.isdecimal() and int(label) < int(self.model.config.num_labels)
        if label not in classes and not is_number:
            known = ", ".join(sorted(classes, key=classes.__getitem__))
            raise FileFormatError(
                f"{path} must label records by number or as the model names its classes ({known}); got {label!r}."
            )
        return int(classes.get(label, label))

    def _prepare_images(self, images: Iterable[npt.NDArray[np.uint8]], *, n_images: int) -> npt.NDArray[np.float32]:
        """(n, channels, height, width) in memory, for every model of the audit reads them several times."""
        from ruler.core.readers.pretrained import load_image_processor

        processor = load_image_processor(self.folder)
        return np.stack(
            [self._prepare_image(processor, image) for image in track(images, "preparing images", n_items=n_images)]
        )

    def _prepare_image(self, processor: Any, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        try:
            prepared = processor(image, return_tensors="np", input_data_format="channels_last")
        except Exception as error:  # a processor that is not for such images raises anything
            raise FileFormatError(
                f"images must be such that the image processor in {self.folder} takes them; got one of shape "
                f"{image.shape}: {shorten(error)}"
            ) from error
        values: npt.NDArray[np.float32] = np.asarray(prepared[self.model.main_input_name][0], dtype=np.float32)
        return values


def _read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file with a header, or of a file with one JSON object per line."""
    with path.open(newline="", encoding="utf-8-sig") as stream, _long_fields(path):
        if path.suffix.lower() == ".csv":
            return list(csv.DictReader(stream, strict=True))
        rows = [json.loads(line) for line in stream if line.strip()]
    odd = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
    if odd is not None:
        raise FileFormatError(f"{path} must hold one JSON object per line; got another value in line {odd}.")
    return rows


@contextmanager
def _long_fields(path: Path) -> Iterator[None]:
    """Fields as long as the file, not csv's 131,072 characters; that limit is the process's, so it is put back."""
    limit = csv.field_size_limit()
    csv.field_size_limit(max(limit, min(path.stat().st_size, _LONGEST_FIELD)))
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _check_texts(rows: list[dict[str, Any]], path: Path) -> None:
    blank = [n for n, row in enumerate(rows, 1) if not (isinstance(row.get("text"), str) and row["text"].strip())]
    if rows and not blank:
        return
    columns = ", ".join(map(str, rows[0])) if rows else "no rows"
    found = f"none in record {blank[0]}" if rows and "text" in rows[0] else columns
    raise FileFormatError(f"{path} must have a column text, filled in every row; got {found}.")
