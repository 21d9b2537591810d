"""A name, a table or a dataset -> sentences, with the document that each is from."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.readers.datasets import joining, read_dataset
from ruler.core.readers.tables import TABLE_SUFFIXES, read_table
from ruler.core.registry import Registry
from ruler.data.datasets import TextSet
from ruler.data.sources import check_exists, find_home, locate, resolve, write_table
from ruler.data.types import TextData

SHORTEST, LONGEST = 20, 300

# After a full stop, question or exclamation mark, if a capital, a digit or an opening mark follows; the commas
# between are what is left of line breaks in MTSamples. And at every empty line.
_BOUNDARY = re.compile(r"""(?<=[.!?])[\s,]+(?=[A-Z0-9"'(])|\n\s*\n""")


def load_texts(
    source: str | os.PathLike[str] | TextSet = "mtsamples",
    *,
    column: str | None = None,
    by: Literal["distinct", "row"] | None = None,
    root: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> TextData:
    """Which sentences are there, and which of them must be forgotten together?

    Args:
        source: Key of a dataset (``"mtsamples"``), a dataset, or a path to a table (.csv, .csv.gz, .parquet) or to a
            Hugging Face dataset saved on disk.
        column: Where the texts stand; for your own data only.
        by: ``"distinct"``, the default: rows with the same text are one document. ``"row"``: every row is a document
            of its own, which leaks wherever a text is listed twice, since one copy may be forgotten and the other
            retained.
        root: Data folder to use instead of the one that ``RULER_DATA`` names.
        progress: Show on stderr how far cutting into sentences is.

    Returns:
        TextData, documents in the order in which they are first listed. Sentences are those of ``split_sentences``.

    Raises:
        UnknownNameError: No such dataset or column; says the nearest.
        InputError: A path that is absent, a column that is not named or holds no text, another ``by``.
        FileFormatError: A file that cannot be read safely.
        DataMismatchError: A dataset in another version.
        DownloadError: The dataset is not on this machine; it has no public home that can be read by a program.

    Example:
        >>> load_texts("mtsample")
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: text dataset must be one of mtsamples, ... Did you mean 'mtsamples'? ...
    """
    if by not in ("distinct", "row", None):
        raise InputError(f"by must be one of distinct, row; got {by!r}.")
    dataset = resolve(source, TextSet, TABLE_SUFFIXES)
    if isinstance(dataset, Path):
        return _cut_documents(dataset.name, _read_own(dataset, column), by or "distinct", is_shown=progress)
    if column is not None:
        raise InputError(f"column must be omitted for a dataset with a name; got {column!r} for {dataset.key!r}.")
    if dataset.read is not None:
        found = dataset.read()
        note = dataset.verify(hash_texts(found.sentences), found.note, dataset.origin)
        return replace(found, name=dataset.key, note=note)
    path = locate(dataset, root).path or fetch_texts(dataset, progress=progress)
    table = read_table(path)
    columns = Registry(f"column of {path.name}", {str(name): table[name] for name in table.columns})
    texts = _as_texts(columns[dataset.column], dataset.column)
    note = dataset.verify(hash_texts(texts.values()), "", str(path))
    return _cut_documents(dataset.key, texts, by or dataset.by, note=note, is_shown=progress)


def fetch_texts(dataset: TextSet, *, progress: bool = False) -> Path:
    """Download a table of texts into the cache, whatever is there already; loading verifies it."""
    path, download = find_home(dataset)
    write_table(download(dataset, progress), path)
    return path


def hash_texts(texts: Iterable[str]) -> str:
    """SHA-256 of texts in their order, each with its length: the same on every machine."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode()
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def split_sentences(text: str) -> list[str]:
    """What sentences does a text hold, of 20 to 300 characters?

    Cut after ``.``, ``!`` or ``?`` where whitespace or commas and then a capital, a digit, a quote or a bracket
    follow, and at empty lines. Runs of whitespace become one blank, commas and blanks at the ends go, and pieces
    shorter than 20 or longer than 300 characters are dropped. The same text always gives the same sentences.

    Example:
        >>> split_sentences("She has used Allegra also.,PLAN:,1.  She will try Zyrtec instead.  Really?")
        ['She has used Allegra also.', 'She will try Zyrtec instead.']
    """
    pieces = (" ".join(piece.split()).strip(" ,") for piece in _BOUNDARY.split(text))
    return [piece for piece in pieces if SHORTEST <= len(piece) <= LONGEST]


def _read_own(path: Path, column: str | None) -> dict[int, str]:
    """The texts of a table, or of all parts of a Hugging Face dataset, by their row."""
    check_exists(path)
    tables = list(read_dataset(path).values()) if path.is_dir() else [read_table(path)]
    names = tables[0].column_names if path.is_dir() else tables[0].columns
    columns = Registry(f"column of {path.name}", {str(name): name for name in names})
    if column is None:
        raise InputError(f"column must name the texts; got None. {path.name} has {', '.join(columns)}.")
    if not path.is_dir():
        return _as_texts(tables[0][columns[column]], column)
    pandas = load_optional("pandas", "reading texts")
    with joining(path):
        parts = pandas.concat([table[columns[column]].to_pandas() for table in tables], ignore_index=True)
    return _as_texts(parts, column)


def _as_texts(column: Any, name: str) -> dict[int, str]:
    """The texts by their row, without empty rows."""
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
        note=note,
    )
