"""Results -> the paper's tables: numbers under the published keys, and how each table is set."""

from functools import partial
from typing import TYPE_CHECKING

from ruler.core.registry import Registry
from ruler.paper.tables import diagnostics, tabular
from ruler.paper.tables.language import compute_language
from ruler.paper.tables.layout import PaperTable, read_tables
from ruler.paper.tables.numbers import as_frame
from ruler.paper.tables.text import compute_text_numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "PaperTable", "compute_numbers"]

TABLES: Registry[PaperTable] = Registry(
    "table",
    read_tables(
        {
            "1": tabular.compute_table_1,
            "3": tabular.compute_table_3,
            "4": tabular.compute_table_4,
            "5": tabular.compute_table_5,
            "6": tabular.compute_table_6,
            "7": partial(tabular.compute_learning_rates, part=1),
            "8": partial(tabular.compute_learning_rates, part=2),
            "9": tabular.compute_table_9,
            "10": tabular.compute_table_10,
            "11": tabular.compute_table_11,
            "12": partial(diagnostics.compute_conditions, table="12", study="large-tabular"),
            "13": partial(diagnostics.compute_conditions, table="13", study="images"),
            "14": partial(diagnostics.compute_conditions, table="14", study="faces"),
            "methods": tabular.compute_method_comparisons,
            "clinical": partial(diagnostics.compute_conditions, table="text", study="clinical"),
            "face_controls": diagnostics.compute_face_controls,
            "clinical_leak": diagnostics.compute_clinical_leak,
            "language_models": compute_language,
            "text": compute_text_numbers,
        }
    ),
)


def compute_numbers(results: "pd.DataFrame") -> "dict[str, pd.DataFrame]":
    """Which numbers do these results give for each table?

    Args:
        results: Checked results, one row per finished cell.

    Returns:
        For each table a tidy frame, one row per number: ``table``, ``column``, ``value``, ``n``, ``n_paper``,
        ``note``, ``out_of`` and the keys of the published numbers. Empty where its study was not run.

    Example:
        >>> import pandas
        >>> from ruler.paper.results import REQUIRED, check_results
        >>> numbers = compute_numbers(check_results(pandas.DataFrame(columns=REQUIRED)))
        >>> len(numbers), numbers["1"].empty
        (19, True)
    """
    frames = {}
    for name, table in TABLES.items():
        frames[name] = as_frame(table.compute(results))
        frames[name].insert(0, "table", name)
    return frames
