"""A Hugging Face dataset saved on disk -> tables, without `datasets`, its code or any pickle."""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from ruler.core.errors import FileFormatError, InputError, shorten
from ruler.core.optional import load_optional
from ruler.core.readers.documents import read_json
from ruler.core.readers.safety import check_unfolded_size, reading_safely
from ruler.core.readers.tables import measure_unfolded, read_parquet

T = TypeVar("T")
_HEADER, _DICTIONARY_DATA, _COMPRESSION = 2, 1, 3  # fields of an Arrow message, dictionary batch, record batch
_MARKS = ("dataset_dict.json", "dataset_info.json", "state.json")


def is_dataset_folder(folder: Path) -> bool:
    """Whether a folder was written by ``save_to_disk``, or holds the parquet files of a dataset."""
    return any((folder / mark).is_file() for mark in _MARKS) or bool(_list_parquet(folder))


def read_dataset(folder: Path) -> dict[str, Any]:
    """The parts of a dataset, such as train and test, each a pyarrow Table.

    Args:
        folder: As ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` left it, or with parquet files named
            ``train-....parquet`` as on the hub, in it or in its folder ``data``.
    """
    if (folder / "dataset_dict.json").is_file():
        parts = _read_list(folder / "dataset_dict.json", "splits")
        return {str(part): _read_arrow(folder / _plain(part, folder)) for part in parts}
    if (folder / "state.json").is_file():
        return {str(read_json(folder / "state.json").get("_split") or "all"): _read_arrow(folder)}
    return _read_parquet(folder)


def read_records(folder: Path, kind: Literal["image", "text"]) -> list[dict[str, Any]]:
    """The rows of a dataset that has one part only, as a model is given them.

    Returns:
        Of each row ``image``, the bytes of its file, or ``text``. Where there are such columns also ``label``, as text,
        with ``class``, the name that the dataset has for that number, and ``id``, as text.

    Raises:
        InputError: Several parts, no rows, no column of images or texts, or images that are paths to files elsewhere.
        FileFormatError: A file that is missing or broken.
    """
    part, table = only_part(read_dataset(folder), folder)
    name = f"{folder.name}/{part}"
    check_table(table, name)
    features = read_features(table)
    if kind == "image":
        cells = table[find_column(table, features, "Image", "image", name)].to_pylist()
        records: list[dict[str, Any]] = [{"image": bytes_of(cell, f"{name}/{row}")} for row, cell in enumerate(cells)]
    elif "text" in table.column_names:
        records = [{"text": text} for text in table["text"].to_pylist()]
    else:
        raise InputError(
            f"{name} must have a column 'text'; got {', '.join(table.column_names)}. Rename the one with the texts."
        )
    if "id" in table.column_names:
        records = [{**record, "id": str(key)} for record, key in zip(records, table["id"].to_pylist(), strict=True)]
    return [{**record, **label} for record, label in zip(records, _read_labels(table, features, name), strict=True)]


def only_part(parts: dict[str, T], folder: Path) -> tuple[str, T]:
    """The one part of a dataset and its name; training and test records are not joined unasked."""
    first = next(iter(parts))
    if len(parts) > 1:
        is_apart = (folder / first).is_dir()
        advice = (
            f"Name the folder of one, such as {folder / first}." if is_apart else "Put each in a folder of its own."
        )
        raise InputError(f"{folder} must hold one part of a dataset; got {', '.join(parts)}. {advice}")
    return first, parts[first]


def _read_labels(table: Any, features: dict[str, Any], name: str) -> list[dict[str, str]]:
    kinds = [features.get(column, {}).get("_type") for column in table.column_names]
    if "label" not in table.column_names and "ClassLabel" not in kinds:
        return [{}] * table.num_rows
    column = find_column(table, features, "ClassLabel", "label", name)
    declared = features.get(column, {}).get("names")
    names = dict(enumerate(map(str, declared))) if isinstance(declared, list) else {}
    values = table[column].to_pylist()
    labels = [{"label": "" if value is None else str(value)} for value in values]
    return [
        {**label, "class": names[value]} if isinstance(value, int) and value in names else label
        for value, label in zip(values, labels, strict=True)
    ]


def check_table(table: Any, name: str) -> None:
    """Refuse a table without rows or with two columns of one name."""
    if table.num_rows == 0 or len(set(table.column_names)) < len(table.column_names):
        raise InputError(f"{name} must have rows, and columns of different names; got {table.num_rows} rows.")


def find_column(table: Any, features: dict[str, Any], kind: str, usual: str, name: str) -> str:
    """The column of the usual name, or the only one of the type ``kind``."""
    typed: list[str] = [column for column in table.column_names if features.get(column, {}).get("_type") == kind]
    if usual in table.column_names and (usual in typed or not typed or kind == "ClassLabel"):
        return usual
    if len(typed) == 1:
        return typed[0]
    raise InputError(
        f"{name} must have one column {usual!r} or of type {kind}; got {', '.join(typed) or 'none'} among "
        f"{', '.join(table.column_names)}. Rename the one that you mean to {usual!r}."
    )


def bytes_of(cell: Any, name: str) -> bytes:
    """The file of an image that is stored in a table; paths to files elsewhere are not followed."""
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(content, bytes):
        raise InputError(
            f"{name} must hold the image itself; got {'a path' if isinstance(cell, dict) else type(cell).__name__}. "
            "Save the dataset with its images embedded."
        )
    return content


def read_features(table: Any) -> dict[str, Any]:
    """What `datasets` noted of each column; empty without such notes."""
    metadata = (table.schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = json.loads(metadata).get("info", {}).get("features", {})
        return {name: value for name, value in features.items() if isinstance(value, dict)}
    except (ValueError, AttributeError, RecursionError):
        return {}  # without its notes a table is still a table


def _read_arrow(folder: Path) -> Any:
    pyarrow = load_optional("pyarrow", "reading a dataset")
    state = read_json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise FileFormatError(
            f"{folder} must hold the rows that it means; got all rows and a list of chosen ones. Save it again after "
            "flatten_indices()."
        )
    files = _read_list(folder / "state.json", "_data_files")
    names = [file.get("filename") if isinstance(file, dict) else file for file in files]
    tables = [_open_stream(folder / _plain(name, folder)) for name in names]
    with joining(folder):
        return pyarrow.concat_tables(tables)


def _open_stream(path: Path) -> Any:
    pyarrow = load_optional("pyarrow", "reading a dataset")
    with reading_safely(path, "Arrow file"), pyarrow.memory_map(str(path)) as source:
        check_messages(source, path)
        source.seek(0)
        with pyarrow.ipc.open_stream(source) as stream:
            table = stream.read_all()
        table.validate(full=True)  # a file from others may promise what it does not hold
        n_bytes = sum(measure_unfolded(chunk) for column in table.columns for chunk in column.chunks)
        check_unfolded_size(n_bytes, path)
        return table


def check_messages(source: Any, path: Path) -> None:
    """Refuse an Arrow stream with packed buffers: each claims the memory that it takes."""
    pyarrow = load_optional("pyarrow", "reading a dataset")
    for message in pyarrow.ipc.MessageReader.open_stream(source):
        if is_packed(message.metadata.to_pybytes(), message.type):
            raise FileFormatError(f"{path} must not be compressed inside. Save the dataset with save_to_disk.")


def is_packed(content: bytes, kind: str) -> bool:
    """Whether a record or dictionary batch of Arrow's format says how its buffers are compressed."""

    def follow(at: int) -> int:
        return at + int(struct.unpack_from("<I", content, at)[0])

    def find_field(table: int, number: int) -> int:
        """Where a field of a flatbuffers table lies; 0 if it is not there."""
        fields = table - int(struct.unpack_from("<i", content, table)[0])
        size, place = struct.unpack_from("<H", content, fields)[0], 4 + 2 * number
        offset = struct.unpack_from("<H", content, fields + place)[0] if place < size else 0
        return table + int(offset) if offset else 0

    if kind not in ("record batch", "dictionary"):
        return False
    batch = follow(find_field(follow(0), _HEADER))
    if kind == "dictionary":
        batch = follow(find_field(batch, _DICTIONARY_DATA))
    return find_field(batch, _COMPRESSION) != 0


def _list_parquet(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.parquet"), *(folder / "data").glob("*.parquet")])


def _read_parquet(folder: Path) -> dict[str, Any]:
    pyarrow = load_optional("pyarrow", "reading a dataset")
    parts: dict[str, list[Any]] = {}
    for path in _list_parquet(folder):
        parts.setdefault(path.stem.partition("-")[0], []).append(read_parquet(path))
    if not parts:
        raise FileFormatError(f"{folder} must hold a dataset; got neither state.json nor parquet files.")
    with joining(folder):
        return {part: pyarrow.concat_tables(tables) for part, tables in parts.items()}


@contextmanager
def joining(folder: Path) -> Iterator[None]:
    """Explain tables that cannot be joined."""
    pyarrow = load_optional("pyarrow", "reading a dataset")
    try:
        yield
    except (KeyError, pyarrow.ArrowException) as error:
        raise FileFormatError(
            f"files of {folder} must all have the same columns; got others: {shorten(error)}"
        ) from error


def _read_list(path: Path, key: str) -> list[Any]:
    listed = read_json(path).get(key)
    if not isinstance(listed, list) or not listed:
        raise FileFormatError(f"{path} must list something under {key}; got {listed!r:.50}. Save the dataset again.")
    return listed


def _plain(name: Any, folder: Path) -> str:
    if not isinstance(name, str) or name in ("", ".", "..") or Path(name).name != name or "\\" in name:
        raise FileFormatError(f"files of {folder} must lie in it; got {name!r}. Save the dataset again.")
    return name
