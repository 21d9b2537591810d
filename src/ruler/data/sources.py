"""Finding a published table: the data folder, then the cache, then a download."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ruler.core.errors import FileFormatError, InputError
from ruler.core.locations import cache_folder, data_folder
from ruler.core.optional import load_optional
from ruler.data.sets import TabularSet

Place = Literal["RULER_DATA", "cache", "scikit-learn", "to download"]
TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Location:
    """Where a published table is now; ``path`` is None where there is no file of it."""

    place: Place
    path: Path | None = None


def locate(entry: TabularSet, root: Path | None = None) -> Location:
    """Where is this set now? Looks, and never downloads.

    Args:
        entry: One of ``TABULAR_SETS``.
        root: Folder laid out as ``RULER_DATA``, instead of the one in the environment.
    """
    if entry.openml_id is None:
        return Location("scikit-learn")
    cached = cached_file(entry)
    found = (root or data_folder()) / "tabular" / cached.name
    if found.is_file() and found != cached:
        return Location("RULER_DATA", found)
    return Location("cache", cached) if cached.is_file() else Location("to download")


def cached_file(entry: TabularSet) -> Path:
    """Where a download of this set is kept."""
    return cache_folder() / "tabular" / f"{entry.key}.csv.gz"


def read_table(path: Path) -> Any:
    """Read a CSV or parquet file, its columns as they are, only the empty string missing.

    Returns:
        DataFrame with at least one row and one column.

    Raises:
        InputError: No such file, or nothing in it.
        FileFormatError: Not a table that can be read.
    """
    pandas = load_optional("pandas", "reading a table")
    if not path.is_file():
        raise InputError(f"path must be an existing file; got {str(path)!r}. Check the spelling and the folder.")
    if not path.name.lower().endswith(TABLE_SUFFIXES):
        raise FileFormatError(
            f"path must end in {', '.join(TABLE_SUFFIXES)}; got {path.name!r}. Save the table in one of these forms."
        )
    try:
        table = _parse_table(path)
    except pandas.errors.EmptyDataError:
        table = pandas.DataFrame()
    except (OSError, EOFError, ValueError) as error:
        raise FileFormatError(f"{path} must be a table; got a file that cannot be read ({error}).") from error
    if 0 in table.shape:
        raise InputError(f"{path} must hold at least one row below its header; got an empty table. Check the file.")
    return table


def _parse_table(path: Path) -> Any:
    pandas = load_optional("pandas", "reading a table")
    if path.name.lower().endswith(".parquet"):
        load_optional("pyarrow", "reading a parquet file")
        return pandas.read_parquet(path, engine="pyarrow")
    # Content is hashed, so numbers must be parsed to the nearest float; from pandas 3.1 on they always are.
    version = tuple(map(int, pandas.__version__.split(".")[:2]))
    exact = {} if version >= (3, 1) else {"float_precision": "round_trip"}
    return pandas.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False, **exact)


def write_table(table: Any, path: Path) -> None:
    """Write a ``.csv.gz`` that ``read_table`` gives back unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False, compression={"method": "gzip", "mtime": 0})
