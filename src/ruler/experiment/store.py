"""Results on disk: SQLite in WAL mode, append-only, one row per finished cell.

Every process writes its own rows. SQLite serialises the writers, a row is one transaction, and the cell's key is
the primary key: so a killed process leaves a row or no row, and two that finish the same cell leave one. A single
writer would need a queue between processes, whose loss is the one thing that a kill could then cost.
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ruler.core.errors import FileFormatError, InputError, WriteError
from ruler.core.optional import load_optional
from ruler.core.readers.safety import reading_safely
from ruler.experiment.cell import Outcome
from ruler.experiment.grid import CELL_VERSIONS, Cell
from ruler.experiment.rows import COLUMNS, FIRST_COLUMNS, LATER_COLUMNS, NUMERIC, ORDER, Provenance
from ruler.experiment.settings import ENGINES

if TYPE_CHECKING:
    import pandas as pd

_PAUSE_S = 0.01
_LOCKED = ("SQLITE_BUSY", "SQLITE_LOCKED")
_UNWRITABLE = ("SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PERM", "SQLITE_READONLY")


def _tell_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _quote(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)  # "commit" is a word of SQL


_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS results (
    key TEXT PRIMARY KEY, version INTEGER NOT NULL, {", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())}
);
CREATE TABLE IF NOT EXISTS failures (
    key TEXT NOT NULL, error TEXT NOT NULL, details TEXT NOT NULL, finished_at TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS results_are_kept BEFORE DELETE ON results
    BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
CREATE TRIGGER IF NOT EXISTS results_stay BEFORE UPDATE ON results
    BEGIN SELECT RAISE(ABORT, 'results are append-only'); END;
"""


_THINGS = {
    *{("table", name) for name in ("results", "failures")},
    *{("trigger", name) for name in ("results_are_kept", "results_stay")},
}


class ResultStore:
    """The rows of a results file; any number of processes may have it open.

    Args:
        path: The file, which is created if it is absent; its folder must exist.
        patience_s: How long to wait for another program that keeps the file locked.

    Every method raises the errors below.

    Raises:
        FileFormatError: The file is no SQLite database, not one of ours, or damaged.
        WriteError: The disk is full or read-only, or another program keeps the file locked.
    """

    def __init__(self, path: str | Path, *, patience_s: float = 60.0) -> None:
        self.path, self._patience_s = Path(path), patience_s
        with self._explaining():
            self._connection = sqlite3.connect(self.path, timeout=patience_s, isolation_level=None)
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        with self._explaining():
            if not self._has_schema():
                # a database of another program is refused before anything is written to it
                found = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                names = {name for (name,) in found}
                if names and "results" not in names:
                    raise sqlite3.DatabaseError("a database of another program")
            self._enter_wal_mode()
            self._connection.execute("PRAGMA synchronous = NORMAL")
            if not self._has_schema():
                self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
                self._add_later_columns()
            if not self._has_schema():
                raise sqlite3.DatabaseError("tables with other columns")

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say in one line that a file is broken or foreign, or cannot be written."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            fault = getattr(error, "sqlite_errorname", "")
            if fault.startswith(_LOCKED):
                raise WriteError(
                    f"{self.path} must be free to be written; got: another program has kept it locked for "
                    f"{self._patience_s:g} s. Close that program."
                ) from error
            if fault.startswith(_UNWRITABLE):
                raise WriteError(
                    f"{self.path} must be writable; got: {error}. Free some space there, and check the rights."
                ) from error
            raise FileFormatError(
                f"{self.path} must be a results file of this version; got {error}. Name another folder with --out."
            ) from error

    def _ask(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._explaining():
            return self._connection.execute(query, values).fetchall()

    def _enter_wal_mode(self) -> None:
        """Try until no other process does the same: SQLite then answers 'locked' at once, whatever its timeout."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline_s:
                    raise
                time.sleep(_PAUSE_S)

    def _add_later_columns(self) -> None:
        """Add the columns that an earlier version did not have."""
        self._connection.execute("BEGIN IMMEDIATE")
        found = [row[1] for row in self._connection.execute("PRAGMA table_info(results)")]
        if set(found) >= {"key", "version", *FIRST_COLUMNS}:
            for name, kind in LATER_COLUMNS.items():
                if name not in found:
                    self._connection.execute(f'ALTER TABLE results ADD COLUMN "{name}" {kind}')
        self._connection.execute("COMMIT")

    def _has_schema(self) -> bool:
        found = [row[1] for row in self._connection.execute("PRAGMA table_info(results)")]
        things = self._connection.execute("SELECT type, name FROM sqlite_master WHERE type <> 'index'").fetchall()
        return set(found) == {"key", "version", *COLUMNS} and set(things) == _THINGS

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "ResultStore":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, outcome: Outcome, provenance: Provenance) -> None:
        """Record a finished cell, or a failure; a cell that is there already is left as it is."""
        if outcome.scores is None:
            self.add_failures([outcome.cell], outcome.error, outcome.details)
            return
        values: dict[str, Any] = asdict(outcome.cell) | outcome.scores | asdict(provenance)
        values |= {"elapsed_s": outcome.elapsed_s, "finished_at": _tell_time()}
        row = [outcome.cell.key, outcome.cell.version, *(values.get(name) for name in COLUMNS)]
        names, marks = _quote(("key", "version", *COLUMNS)), ", ".join("?" * len(row))
        self._ask(f"INSERT OR IGNORE INTO results ({names}) VALUES ({marks})", row)

    def add_failures(self, cells: Sequence[Cell], error: str, details: str = "") -> None:
        """Record that cells failed, except those that have a row; they stay to be done."""
        query = "INSERT INTO failures SELECT ?, ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM results WHERE key = ?)"
        for cell in cells:
            self._ask(query, (cell.key, error, details, _tell_time(), cell.key))

    def list_finished(self) -> set[str]:
        """Keys of all cells with a row."""
        return {key for (key,) in self._ask("SELECT key FROM results")}

    def list_failures(self) -> dict[str, str]:
        """Key -> latest error of cells that failed and have no row since."""
        query = "SELECT key, error FROM failures WHERE key NOT IN (SELECT key FROM results) ORDER BY rowid"
        return dict(self._ask(query))

    def list_rows(self) -> list[tuple[Any, ...]]:
        """All rows of each engine's newest version in the file; older ones stay there, but no table may mix them."""
        query = f"""
            SELECT {_quote(tuple(COLUMNS))} FROM results
            JOIN (SELECT engine AS by, max(version) AS newest FROM results GROUP BY engine) ON engine IS by
            WHERE version = newest ORDER BY {_quote(ORDER)}
        """
        return self._ask(query)

    def check_variant(self, cells: Sequence[Cell]) -> None:
        """A file holds a study in one variant, so that no table mixes two.

        Raises:
            InputError: The file has rows of the same study by another engine, from other models, in another precision
                or size.
        """
        wanted = {cell.study: tuple(map(str, (cell.engine, cell.models, cell.precision, cell.size))) for cell in cells}
        query = "SELECT DISTINCT version, study, engine, models, precision, size FROM results"
        for version, study, *found in self._ask(query):
            variant = tuple(map(str, found))
            is_of_now = version == CELL_VERSIONS.get(variant[0], 1)
            if is_of_now and (asked := wanted.get(study, variant)) != variant:
                is_other_engine = variant[0] in ENGINES and variant[1:] == asked[1:]
                resume = f"Resume with --engine {variant[0]}, or name" if is_other_engine else "Name"
                raise InputError(
                    f"{self.path} must hold the study {study} in one variant; got rows of {_name(variant)} models "
                    f"and a run of {_name(asked)} models. {resume} another folder with --out."
                )

    def check_language_model(self, name: str, datasets: Sequence[str] | None = None) -> None:
        """A file holds texts in one pretrained model, so that no table mixes two.

        Args:
            name: Of the model of this run.
            datasets: That it reads; None for all.

        Raises:
            InputError: The file has rows of another.
        """
        query = "SELECT DISTINCT version, engine, dataset, model FROM results WHERE model IS NOT NULL"
        for version, engine, dataset, found in self._ask(query):
            is_asked = datasets is None or dataset in datasets
            if is_asked and version == CELL_VERSIONS.get(engine, 1) and found != name:
                raise InputError(
                    f"{self.path} must hold texts in one language model; got rows of {found} and a run of {name}. "
                    "Name that model with --language-model, or another folder with --out."
                )


def _name(variant: tuple[str, ...]) -> str:
    return " / ".join(part for part in variant if part not in ("None", "full"))


def load_results(path: str | Path) -> "pd.DataFrame":
    """What has been measured so far? One row per finished cell, in an order that does not depend on the run.

    Args:
        path: A results file, or the folder that holds ``results.sqlite``.

    Returns:
        Columns of the cell, its scores, engine, models, device, seconds and provenance. NaN: does not apply.

    Raises:
        InputError: No such file.
        FileFormatError: Not a results file.
    """
    pandas = load_optional("pandas", "reading results")
    path = Path(path) / "results.sqlite" if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise InputError(f"path must be a results file; got {path}, which does not exist. Run `ruler reproduce` first.")
    with ResultStore(path) as store:
        table: pd.DataFrame = pandas.DataFrame(store.list_rows(), columns=list(COLUMNS))
    with reading_safely(path, "results file"):
        for name in NUMERIC:
            table[name] = table[name].astype("int64" if name == "n_forget" else "float64")
    return table
