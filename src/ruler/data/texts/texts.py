"""A name, a table or a dataset -> sentences, with the document that each is from."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from ruler.core.errors import DownloadError, InputError
from ruler.core.progress import track
from ruler.core.readers.tables import TABLE_SUFFIXES, read_table
from ruler.core.registry import Registry
from ruler.core.types import IndexArray
from ruler.data.huggingface import read_text_column
from ruler.data.sources import check_exists, find_set, is_path, locate
from ruler.data.texts.sentences import split_sentences
from ruler.data.texts.sets import TEXT_SETS
from ruler.data.verification import verify_content


@dataclass(frozen=True, eq=False)
class TextData:
    """Sentences of documents: sentence i is from document ``documents[i]``.

    Args:
        name: Key of a published set, or the file's or folder's name.
        sentences: n texts of 20 to 300 characters.
        documents: (n,) document of each sentence, 0..n_documents-1: the groups of a partition.
        n_documents: How many documents there are; a few may hold no sentence of that length.
        ids: (n,) names of the sentences: row of the table where the document is first listed, and its place there.
        titles: n_documents titles, or row numbers where the table has none.
        note: What a reader of its numbers must know about these texts.
    """

    name: str
    sentences: tuple[str, ...]
    documents: IndexArray
    n_documents: int
    ids: npt.NDArray[Any]
    titles: tuple[str, ...]
    note: str = ""

    def __len__(self) -> int:
        return len(self.sentences)


def load_texts(
    name_or_path: str | os.PathLike[str] = "mtsamples",
    *,
    column: str | None = None,
    by: Literal["distinct", "row"] = "distinct",
    root: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> TextData:
    """Which sentences are there, and which of them must be forgotten together?

    Args:
        name_or_path: ``"mtsamples"``, or a path to a table (.csv, .csv.gz, .parquet) or to a Hugging Face dataset
            saved on disk.
        column: Where the texts stand; for your own data only.
        by: ``"distinct"``: rows with the same text are one document. ``"row"``: every row is a document of its own,
            which leaks wherever a text is listed twice, since one copy may be forgotten and the other retained.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        progress: Show on stderr, if it is a terminal, how far cutting into sentences is.

    Returns:
        TextData, documents in the order in which they are first listed. Sentences are those of ``split_sentences``.

    Raises:
        UnknownNameError: No such set or column; says the nearest.
        InputError: A path that is absent, a column that is not named or holds no text, another ``by``.
        FileFormatError: A file that cannot be read safely.
        DataMismatchError: A published set in another version.
        DownloadError: The set is not on this machine; it has no public home that can be read by a program.

    Example:
        >>> load_texts("mtsample")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: text set must be one of mtsamples; got 'mtsample'. Did you mean ...
    """
    if by not in ("distinct", "row"):
        raise InputError(f"by must be one of distinct, row; got {by!r}.")
    if is_path(name_or_path, TEXT_SETS, TABLE_SUFFIXES):
        path = Path(name_or_path)
        return _cut_documents(path.name, _read_own(path, column), by, is_shown=progress)
    entry = find_set(str(name_or_path), TEXT_SETS)
    if column is not None:
        raise InputError(f"column must be left out for a published set; got {column!r} for {entry.key!r}.")
    path = locate(entry, None if root is None else Path(root)).path or fetch_texts(entry.key)
    table = read_table(path)
    columns = Registry(f"column of {path.name}", {str(name): table[name] for name in table.columns})
    texts = _as_texts(columns[entry.column], entry.column)
    titles = columns[entry.title_column].fillna("").str.strip()
    note = verify_content(entry, hash_texts(texts.values()), "", str(path))
    return _cut_documents(entry.key, texts, by, titles=titles.to_dict(), note=note, is_shown=progress)


def fetch_texts(name: str = "mtsamples") -> NoReturn:
    """Say where a published set of texts can be had: none of them can be downloaded without an account.

    Args:
        name: Key of a published set.

    Raises:
        DownloadError: Always; says what to do.
    """
    entry = TEXT_SETS[name]
    raise DownloadError(
        f"{entry.title} must be put there by hand; got no copy on this machine, and its home "
        f"({entry.origin}) asks for an account. Get the CSV file there, gzip it, and put it at {entry.file} in the "
        "folder that RULER_DATA names."
    )


def hash_texts(texts: Iterable[str]) -> str:
    """SHA-256 of texts in their order, each with its length: the same on every machine."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def _read_own(path: Path, column: str | None) -> dict[int, str]:
    check_exists(path)
    if path.is_dir():
        return _as_texts(read_text_column(path, column), str(column))
    table = read_table(path)
    columns = Registry(f"column of {path.name}", {str(name): table[name] for name in table.columns})
    if column is None:
        raise InputError(f"column must name the texts; got None. {path.name} has {', '.join(columns)}.")
    return _as_texts(columns[column], column)


def _as_texts(column: Any, name: str) -> dict[int, str]:
    """The texts by their row, rows without one left out."""
    present = column.dropna()
    n_other = sum(not isinstance(value, str) for value in present)
    if n_other or not any(value.strip() for value in present):
        got = f"{n_other} rows with something else" if n_other else "blank rows alone"
        raise InputError(f"column {name!r} must hold text; got {got}. Name another.")
    return {int(row): value for row, value in present.items() if value.strip()}


def _cut_documents(
    name: str,
    texts: dict[int, str],
    by: str,
    *,
    is_shown: bool,
    titles: dict[int, str] | None = None,
    note: str = "",
) -> TextData:
    firsts: dict[str | int, int] = {}
    for row, text in texts.items():
        firsts.setdefault(" ".join(text.split()) if by == "distinct" else row, row)
    rows = list(firsts.values())
    cutting = track(rows, "cutting into sentences", n_items=len(rows), is_shown=is_shown)
    found = [split_sentences(texts[row]) for row in cutting]
    if not any(found):
        raise InputError(f"{name} must hold a sentence of 20 to 300 characters; got none. Check the column.")
    return TextData(
        name=name,
        sentences=tuple(sentence for sentences in found for sentence in sentences),
        documents=np.repeat(np.arange(len(rows)), [len(sentences) for sentences in found]),
        n_documents=len(rows),
        ids=np.array([f"{row}/{n}" for row, sentences in zip(rows, found, strict=True) for n in range(len(sentences))]),
        titles=tuple((titles or {}).get(row) or f"row {row}" for row in rows),
        note=note,
    )
