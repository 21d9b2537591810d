"""Files and folders of records -> what models are fed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError, shorten, suggest
from ruler.core.progress import track
from ruler.core.readers.arrays import decode_image, list_images, open_npy, read_npz
from ruler.core.readers.datasets import is_dataset_folder, read_records
from ruler.core.readers.pretrained import load_image_processor, load_tokenizer
from ruler.core.readers.safety import check_at_most, limit
from ruler.core.readers.tables import read_rows
from ruler.embeddings.bundle.prompts import PromptForm, read_prompt_rows

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ARRAYS = {"inputs", "labels", "ids", "groups", "strata"}
Labels = npt.NDArray[Any]


class NamedRecords:
    """Records with ids, groups or strata, as a Dataset that `embed` reads.

    Example:
        >>> records = NamedRecords((np.eye(2), np.array([0, 1])), ids=np.array(["ann", "bob"]))
        >>> len(records), records[1][1], records.ids.tolist()
        (2, np.int64(1), ['ann', 'bob'])
    """

    def __init__(
        self,
        parts: tuple[npt.NDArray[Any], ...],
        ids: Labels | None = None,
        groups: Labels | None = None,
        strata: Labels | None = None,
    ) -> None:
        self._parts, self.ids, self.groups, self.strata = parts, ids, groups, strata

    def __len__(self) -> int:
        return len(self._parts[0])

    def __getitem__(self, row: int) -> Any:
        record = tuple(part[row] for part in self._parts)
        return record if len(record) > 1 else record[0]


def load_records(path: Path) -> NamedRecords | npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]:
    """Inputs of a model, with what else the file says of the records, as `embed` takes them.

    Args:
        path: ``.npy`` with the inputs (n, ...), or ``.npz`` with ``inputs`` and, if known, ``labels``, ``ids``,
            ``groups`` and ``strata``.
    """
    arrays = _load_arrays(path)
    parts = tuple(arrays[name] for name in ("inputs", "labels") if name in arrays)
    beside = {name: arrays[name] for name in ("ids", "groups", "strata") if name in arrays}
    if beside:
        return NamedRecords(parts, **beside)
    return parts if len(parts) > 1 else parts[0]


def _load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if path.suffix.lower() == ".npy":
        return {"inputs": open_npy(path)}
    if path.suffix.lower() != ".npz" and path.is_file():
        raise FileFormatError(f"{path} must be a .npy or .npz file of inputs; got {path.suffix or 'no ending'!r}.")
    arrays = read_npz(path)
    if "inputs" not in arrays or not arrays.keys() <= _ARRAYS:
        raise FileFormatError(
            f"{path} must hold the array inputs and at most labels, ids, groups and strata beside it; got "
            f"{', '.join(arrays)}."
        )
    lengths = {len(array) if array.ndim else None for array in arrays.values()}
    if len(lengths) > 1 or None in lengths:
        raise FileFormatError(f"{path} must hold as many labels, ids, groups and strata as inputs.")
    return arrays


@dataclass(frozen=True, eq=False)
class FolderRecords:
    """Records as a transformers model's own tokenizer or image processor, saved beside it, prepares them.

    Args:
        folder: Of the model; of the base model where that one is an adapter.
        model: As `load_transformer` gives it.
        columns: What tables of texts call ``label`` and ``strata``, where they call them otherwise.
        prompts: How prompts and completions are written, for language models.
    """

    folder: Path
    model: "PreTrainedModel"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    prompts: PromptForm = field(default_factory=lambda: PromptForm({}))

    def takes_prompts(self, path: Path) -> bool:
        """Whether these records are prompts and completions: the model writes, and the table or its user says so."""
        from ruler.embeddings import heads

        model: Any = self.model
        is_writer = heads.predicts_next_token(model) or heads.is_encoder_decoder(model)
        if self.prompts.is_asked_for and not is_writer:
            raise FileFormatError(
                f"{path} must be read by a language model that writes, since [data] speaks of prompts; got "
                f"{type(model).__name__}. Leave prompt, completion, span, template, form and max_tokens out."
            )
        if self.prompts.is_asked_for or not is_writer:
            return is_writer
        is_table = path.suffix.lower() in (".csv", ".jsonl", ".parquet") or (path.is_dir() and is_dataset_folder(path))
        rows = read_prompt_rows(path) if is_table and path.exists() else []
        return bool(rows) and {"prompt", "completion"} <= rows[0].keys()

    def load(self, path: Path) -> list[dict[str, Any]] | dict[str, npt.NDArray[Any]]:
        """Records of one side, as `embed` takes them. Texts longer than the model reads are cut.

        For language models that write, columns ``prompt`` and ``completion`` are read by `PromptForm`, uncut.

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
        if self.takes_prompts(path):
            from ruler.embeddings import heads

            tokenizer = load_tokenizer(self.folder)
            longest = min(tokenizer.model_max_length, self._count_positions())
            return self.prompts.load(path, tokenizer, longest=longest, is_apart=heads.is_encoder_decoder(self.model))
        if path.is_dir():
            return self._load_dataset(path) if is_dataset_folder(path) else self._load_image_folder(path)
        if not path.exists():
            raise FileFormatError(f"{path} must be a file or folder of records; got nothing there. Check the path.")
        if path.suffix.lower() in (".csv", ".jsonl"):
            return self._encode_texts(read_rows(path), path)
        if path.suffix.lower() not in (".npy", ".npz"):
            raise FileFormatError(
                f"{path} must be a .csv or .jsonl file of texts, a folder of images, a Hugging Face dataset saved on "
                f"disk, or a .npy or .npz file of inputs; got {path.suffix or 'no ending'!r}."
            )
        arrays = _load_arrays(path)
        inputs = arrays.pop("inputs")
        if inputs.dtype == np.uint8 and inputs.ndim == 4:
            inputs = self._prepare_images(inputs, n_images=len(inputs))
        return {self.model.main_input_name: inputs, **arrays}

    def _load_dataset(self, folder: Path) -> list[dict[str, Any]] | dict[str, npt.NDArray[Any]]:
        is_of_images = self.model.main_input_name == "pixel_values"
        rows = read_records(folder, "image" if is_of_images else "text")
        config: Any = self.model.config
        unnamed = {f"LABEL_{number}": number for number in range(int(config.num_labels))}
        if config.label2id != unnamed:  # else the model has no names of its own, and numbers count
            rows = [{**row, "label": row["class"]} if "class" in row else row for row in rows]
        if not is_of_images:
            return self._encode_texts(rows, folder)
        images = (decode_image(row["image"], f"image {number} of {folder}") for number, row in enumerate(rows))
        records = {self.model.main_input_name: self._prepare_images(images, n_images=len(rows))}
        if "id" in rows[0]:
            records["id"] = np.array([row["id"] for row in rows])
        if "label" in rows[0]:
            records["labels"] = np.array([self._find_class(row["label"], folder) for row in rows])
        return records

    def _load_image_folder(self, folder: Path) -> dict[str, npt.NDArray[Any]]:
        paths = list_images(folder)
        places = [path.relative_to(folder) for path in paths]
        outside = [place.name for place in places if len(place.parts) == 1]
        has_classes = len(outside) < len(places)
        if has_classes and outside:
            raise FileFormatError(
                f"{folder} must hold its images either all in subfolders, one per class, or all directly; got both, "
                f"such as {outside[0]} beside subfolders. Move them."
            )
        images = (decode_image(path.read_bytes(), str(path)) for path in paths)
        records = {
            self.model.main_input_name: self._prepare_images(images, n_images=len(paths)),
            "id": np.array([place.as_posix() for place in places]),
        }
        if has_classes:
            records["labels"] = np.array([self._find_class(place.parts[0], folder) for place in places])
        return records

    def _encode_texts(self, rows: Sequence[Mapping[str, Any]], path: Path) -> list[dict[str, Any]]:
        blank = [n for n, row in enumerate(rows, 1) if not (isinstance(row.get("text"), str) and row["text"].strip())]
        if not rows or blank:
            columns = ", ".join(map(str, rows[0])) if rows else "no rows"
            found = f"none in record {blank[0]}" if rows and "text" in rows[0] else columns
            near = suggest("text", rows[0]) if rows and "text" not in rows[0] else ""
            raise FileFormatError(f"{path} must have a column text, filled in every row; got {found}.{near}")
        check_at_most(max(len(row["text"]) for row in rows), "text_characters", path, "characters in one text")
        for name, column in self.columns.items():
            if column is not None and column not in rows[0]:
                raise FileFormatError(
                    f"{path} must have the column {column!r}, as data.{name} says; got {', '.join(map(str, rows[0]))}."
                    f"{suggest(column, rows[0])}"
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
        """Tokens that the model can read; models like RoBERTa number them from behind the padding's number."""
        n_positions = getattr(self.model.config, "max_position_embeddings", None) or 0
        if n_positions <= 0:  # XLNet, which counts from token to token, says -1
            return limit("tokens")
        tables = (part for name, part in self.model.named_modules() if name.endswith("position_embeddings"))
        padding = next((part.padding_idx for part in tables if getattr(part, "padding_idx", None) is not None), -1)
        return int(n_positions - padding - 1)

    def _find_class(self, label: str, path: Path) -> int:
        config: Any = self.model.config
        classes: dict[str, int] = config.label2id or {}
        is_number = label.isdecimal() and int(label) < int(config.num_labels)
        if label not in classes and not is_number:
            known = ", ".join(sorted(classes, key=classes.__getitem__))
            raise FileFormatError(
                f"{path} must label records by number or as the model names its classes ({known}); got {label!r}."
            )
        return int(classes.get(label, label))

    def _prepare_images(self, images: Iterable[npt.NDArray[np.uint8]], *, n_images: int) -> npt.NDArray[np.float32]:
        """(n, channels, height, width) in memory, since every model of the audit reads them several times."""
        processor = load_image_processor(self.folder)
        prepared = []
        for image in track(images, "preparing images", n_items=n_images):
            try:
                found = processor(image, return_tensors="np", input_data_format="channels_last")
            except Exception as error:  # a processor that is not for such images raises anything
                raise FileFormatError(
                    f"images must be such that the image processor in {self.folder} takes them; got one of shape "
                    f"{image.shape}: {shorten(error)}"
                ) from error
            prepared.append(np.asarray(found[self.model.main_input_name][0], dtype=np.float32))
        return np.stack(prepared)
