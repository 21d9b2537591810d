"""A published table from OpenML, brought into the form of the files."""

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from ruler.core.errors import DownloadError
from ruler.core.locations import cache_folder
from ruler.core.optional import load_optional
from ruler.data.tables.sets import TabularSet


def download_table(entry: TabularSet, *, progress: bool = False) -> Any:
    """Fetch one set from OpenML.

    Args:
        entry: A set with an OpenML number.
        progress: Show on stderr, if it is a terminal, that a download is under way.

    Returns:
        DataFrame in the form of the files: target last, text plain, missing values empty.

    Raises:
        DownloadError: OpenML cannot be reached or answers with something else.
    """
    try:
        with _announce(f"Fetching {entry.title} ({entry.origin})", is_shown=progress):
            features, target = _ask_openml(entry)
    except (OSError, ValueError, LookupError) as error:
        raise DownloadError(
            f"{entry.title} must come from {entry.origin}; got {type(error).__name__}: {error}. Check the "
            f"connection, or put tabular/{entry.key}.csv.gz into the folder that RULER_DATA names."
        ) from error
    return normalise_openml(features, target, entry)


def _ask_openml(entry: TabularSet) -> tuple[Any, Any]:
    datasets = load_optional("sklearn.datasets", "downloading a data set")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # retries and retired versions: the content is verified anyway
        answer = datasets.fetch_openml(
            data_id=entry.openml_id,
            as_frame=True,
            parser="pandas",
            data_home=cache_folder() / "openml",
            read_csv_kwargs={"dtype": str},  # the text as published: no number is parsed and printed again
        )
    return answer.data, answer.target


def normalise_openml(features: Any, target: Any, entry: TabularSet) -> Any:
    """Undo what OpenML does to a table: categorical types, quotes, numbered names, ``?`` for a missing value.

    Args:
        features: DataFrame as scikit-learn hands it out, its values text or categories.
        target: Series of labels.
        entry: The set that it should be.

    Returns:
        DataFrame that, written and read again, equals the file of the set.
    """
    table = features.copy()
    table.columns = [str(name).rstrip(":") for name in features.columns]
    if len(entry.openml_names) == len(table.columns):
        table.columns = list(entry.openml_names)
    table["target" if "class" in table.columns else "class"] = target.to_numpy(dtype=object)
    for name in table.columns:
        table[name] = _plain_column(table[name], entry)
    return table


def _plain_column(column: Any, entry: TabularSet) -> Any:
    plain = column.astype(object).map(lambda value: str(value).strip().strip("'"), na_action="ignore")
    return plain.fillna("?") if entry.is_question_mark_a_category else plain.where(plain != "?", None)


@contextlib.contextmanager
def _announce(text: str, *, is_shown: bool) -> Iterator[None]:
    if not (is_shown and sys.stderr.isatty()):
        yield
        return
    parts = load_optional("rich.progress", "showing progress")
    console = load_optional("rich.console", "showing progress").Console(stderr=True)
    columns = parts.SpinnerColumn(), parts.TextColumn("{task.description}"), parts.TimeElapsedColumn()
    with parts.Progress(*columns, console=console, transient=True) as shown:
        shown.add_task(text, total=None)
        yield
