"""Results of a run -> everything that is printed: tables, figures, comparison, page."""

from pathlib import Path
from typing import TYPE_CHECKING

from ruler.core.files import write_atomically
from ruler.paper.agreement import COLUMNS, compare_numbers
from ruler.paper.figures import write_figures
from ruler.paper.findings import check_findings
from ruler.paper.page import write_page
from ruler.paper.results import DIAGNOSTIC_STUDIES, check_results, gather_conditions
from ruler.paper.tables import TABLES, arrange, compute_numbers
from ruler.paper.typeset import print_csv, to_csv, to_latex, to_markdown

if TYPE_CHECKING:
    import pandas as pd


def write_all(results: "pd.DataFrame", out: Path) -> None:
    """Write what these results, one row per finished cell, say, beside what the paper says.

    Leaves ``tables/*.{csv,md,tex}``, ``comparison.csv`` (one row per published number), ``verdicts.csv`` (one row per
    condition that was audited), ``reproduction.md`` and ``figures/*.{png,pdf,csv}`` in the folder. Results may be
    partial: a table or figure whose study was not run is left out, and a number on fewer runs than the paper's is
    shown but not judged.

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
    import pandas as pd

    checked = check_results(results)
    numbers = compute_numbers(checked)
    comparison, findings = compare_numbers(numbers), check_findings(checked)
    _write_tables(numbers, out / "tables")
    if len(findings):
        write_atomically(out / "tables" / "findings.csv", print_csv(findings))
    write_atomically(out / "comparison.csv", print_csv(comparison[list(COLUMNS)]))
    verdicts = [gather_conditions(checked, study).assign(study=study) for study in DIAGNOSTIC_STUDIES]
    if known := [part for part in verdicts if len(part)]:
        write_atomically(out / "verdicts.csv", print_csv(pd.concat(known)))
    write_page(checked, numbers, comparison, findings, out / "reproduction.md")
    write_figures(checked, out / "figures")


def _write_tables(numbers: "dict[str, pd.DataFrame]", folder: Path) -> None:
    """Write every table that has numbers as CSV, Markdown and LaTeX."""
    for name, table in TABLES.items():
        if not table.rows or numbers[name].empty:
            continue
        rows = arrange(numbers[name], table)
        stem = f"table_{int(name):02d}" if name.isdigit() else f"table_{name}"
        lines = to_markdown(table, rows, f"# {table.name or f'Table {name}'}")
        contents = {"csv": to_csv(table, rows), "md": "\n".join(lines) + "\n", "tex": to_latex(table, rows, stem)}
        for extension, content in contents.items():
            write_atomically(folder / f"{stem}.{extension}", content)
