"""Results -> the paper's tables: numbers under the published keys, and how each table is set."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.optional import load_optional
from ruler.core.registry import Registry
from ruler.paper.names import DIAGNOSTIC_STUDIES, TABULAR_STUDIES
from ruler.paper.tables import diagnostic_layouts, layouts
from ruler.paper.tables.bad_teacher import compute_table_10, compute_table_11
from ruler.paper.tables.controls import compute_clinical_leak, compute_face_controls
from ruler.paper.tables.diagnostics import compute_clinical, compute_table_12, compute_table_13, compute_table_14
from ruler.paper.tables.layout import Layout
from ruler.paper.tables.methods import compute_method_comparisons
from ruler.paper.tables.numbers import Number, as_frame
from ruler.paper.tables.outputs import compute_table_3, compute_table_4
from ruler.paper.tables.residuals import compute_table_1, compute_table_5, compute_table_6
from ruler.paper.tables.robustness import compute_table_7, compute_table_8, compute_table_9
from ruler.paper.tables.text import compute_text_numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TABLES", "PaperTable", "compute_numbers"]


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper, or one of ours.

    Args:
        studies: Whose results it reads.
        compute: Results -> its numbers; none where its study was not run.
        layout: How it is set; None for numbers that no table shows.
        name: What a table of ours is called; empty for the paper's own, which have numbers.
    """

    studies: tuple[str, ...]
    compute: "Callable[[pd.DataFrame], list[Number]]"
    layout: Layout | None
    name: str = ""

    @property
    def title(self) -> str:
        """What it shows, in one line."""
        return self.layout.caption.partition(". ")[0].rstrip(".") if self.layout else "Numbers stated in the text"


_ALL = (*TABULAR_STUDIES, *DIAGNOSTIC_STUDIES)

TABLES: Registry[PaperTable] = Registry(
    "table",
    {
        "1": PaperTable(("primary",), compute_table_1, layouts.TABLE_1),
        "3": PaperTable(("primary",), compute_table_3, layouts.TABLE_3),
        "4": PaperTable(("primary",), compute_table_4, layouts.TABLE_4),
        "5": PaperTable(("primary",), compute_table_5, layouts.TABLE_5),
        "6": PaperTable(("minibatch",), compute_table_6, layouts.TABLE_6),
        "7": PaperTable(("learning-rate",), compute_table_7, layouts.TABLE_7),
        "8": PaperTable(("learning-rate",), compute_table_8, layouts.TABLE_8),
        "9": PaperTable(("forget-seeds",), compute_table_9, layouts.TABLE_9),
        "10": PaperTable(("bad-teacher", "primary"), compute_table_10, layouts.TABLE_10),
        "11": PaperTable(("bad-teacher", "primary"), compute_table_11, layouts.TABLE_11),
        "12": PaperTable(("large-tabular",), compute_table_12, diagnostic_layouts.TABLE_12),
        "13": PaperTable(("images",), compute_table_13, diagnostic_layouts.TABLE_13),
        "14": PaperTable(("faces",), compute_table_14, diagnostic_layouts.TABLE_14),
        "methods": PaperTable(("primary",), compute_method_comparisons, layouts.METHODS, "Methods compared"),
        "clinical": PaperTable(("clinical",), compute_clinical, diagnostic_layouts.CLINICAL, "Clinical text"),
        "face_controls": PaperTable(
            ("faces",), compute_face_controls, diagnostic_layouts.FACE_CONTROLS, "Face controls"
        ),
        "clinical_leak": PaperTable(
            ("clinical",), compute_clinical_leak, diagnostic_layouts.CLINICAL_LEAK, "Clinical leak"
        ),
        "text": PaperTable(_ALL, compute_text_numbers, None),
    },
)


def compute_numbers(results: "pd.DataFrame") -> "dict[str, pd.DataFrame]":
    """Which numbers do these results give for each table?

    Args:
        results: Checked results, one row a finished cell.

    Returns:
        For each table a tidy frame, one row a number: ``table``, ``column``, ``value``, ``n``, ``n_paper``,
        ``note``, ``out_of`` and the keys of the published numbers. Empty where its study was not run.

    Example:
        >>> import pandas
        >>> from ruler.paper.results import REQUIRED, check_results
        >>> numbers = compute_numbers(check_results(pandas.DataFrame(columns=REQUIRED)))
        >>> len(numbers), numbers["1"].empty
        (18, True)
    """
    load_optional("pandas", "computing the tables")
    frames = {}
    for name, table in TABLES.items():
        frame = as_frame(table.compute(results))
        frame.insert(0, "table", name)
        frames[name] = frame
    return frames
