"""The one writer of Markdown tables."""

from collections.abc import Iterable, Sequence


def markdown_table(
    header: Sequence[str], rows: Iterable[Iterable[str]], *, marks: Sequence[str] | None = None
) -> list[str]:
    """The lines of a table, its cells as they are: escape them before.

    Args:
        header: Names of the columns.
        rows: Cells of each row.
        marks: Alignment of the columns, such as ``--:``; left to the reader's program if not given.

    Example:
        >>> markdown_table(["a", "b"], [["x", "1"]])
        ['| a | b |', '| --- | --- |', '| x | 1 |']
    """
    return [f"| {' | '.join(line)} |" for line in (header, marks or ["---"] * len(header), *rows)]
