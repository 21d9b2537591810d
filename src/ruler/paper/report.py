"""Results of a run -> everything that is printed: tables, figures, comparison, page."""

from pathlib import Path
from typing import TYPE_CHECKING

from ruler.core.files import write_atomically
from ruler.paper.comparison import COLUMNS, compare_numbers
from ruler.paper.diagnostics.findings import check_findings
from ruler.paper.document import write_document
from ruler.paper.figures import write_figures
from ruler.paper.results import check_results
from ruler.paper.tables import TABLES, compute_numbers
from ruler.paper.tables.layout import arrange
from ruler.paper.typeset import to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    import pandas as pd


def write_all(results: "pd.DataFrame", out: Path) -> None:
    """Write what these results say, beside what the paper says.

    Leaves ``tables/*.{csv,md,tex}``, ``comparison.csv`` (one row a published number), ``reproduction.md`` and
    ``figures/*.{png,pdf,csv}`` in the folder. Results may be partial: a table or figure whose study was not run is
    left out, and a number on fewer runs than the paper's is shown but not judged.

    Args:
        results: One row a finished cell, from a store.
        out: The folder; made if missing.

    Raises:
        InputError: A column is missing, or a cell is there twice.
        MissingPackageError: matplotlib is not installed; all but the figures is written by then.

    Example:
        >>> import pandas, tempfile
        >>> from ruler.paper.results import REQUIRED
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_all(pandas.DataFrame(columns=REQUIRED), folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['comparison.csv', 'reproduction.md']
    """
    checked = check_results(results)
    numbers = compute_numbers(checked)
    comparison = compare_numbers(numbers)
    write_tables(numbers, out / "tables")
    write_findings(checked, out / "tables")
    write_atomically(out / "comparison.csv", _print_comparison(comparison))
    write_document(checked, comparison, out / "reproduction.md")
    write_figures(checked, out / "figures")


def write_tables(numbers: "dict[str, pd.DataFrame]", folder: Path) -> list[Path]:
    """Write every table that has numbers as CSV, Markdown and LaTeX.

    Args:
        numbers: Tidy numbers by table, from ``compute_numbers``.
        folder: Where to; made if missing.

    Returns:
        The files written.
    """
    written = []
    for name, table in TABLES.items():
        if table.layout is None or numbers[name].empty:
            continue
        printed = arrange(numbers[name], table.layout)
        stem = f"table_{int(name):02d}" if name.isdigit() else f"table_{name}"
        heading = table.name or f"Table {name}"
        contents = {"csv": to_csv(printed), "md": to_markdown(printed, heading), "tex": to_latex(printed, stem)}
        for extension, content in contents.items():
            write_atomically(folder / f"{stem}.{extension}", content)
            written.append(folder / f"{stem}.{extension}")
    return written


def write_findings(results: "pd.DataFrame", folder: Path) -> list[Path]:
    """Write the checks behind the findings of section 5.5 as CSV; nothing where no diagnostic study was run.

    Args:
        results: Checked results, one row a finished cell.
        folder: Where to; made if missing.

    Returns:
        The files written.
    """
    checks = check_findings(results)
    if checks.empty:
        return []
    path = folder / "findings.csv"
    write_atomically(path, checks.to_csv(index=False, lineterminator="\n", float_format="%.10g"))
    return [path]


def _print_comparison(comparison: "pd.DataFrame") -> str:
    return comparison[list(COLUMNS)].to_csv(index=False, lineterminator="\n", float_format="%.10g")
