"""Text as a person should see it: nothing in it controls the terminal or hides. And the writer of Markdown tables."""

import json
from collections.abc import Iterable, Sequence

# Characters that control, reorder, hide or break the text around them. Joiners are left: scripts and emoji need them.
_CONTROLS = {*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000)} - {ord("\n"), ord("\t")}
_HIDDEN = {0x00AD, 0x061C, 0x180E, 0x200B, 0x200E, 0x200F, 0x2028, 0x2029, 0xFEFF, *range(0x2060, 0x2070)}
_REORDERING = {*range(0x202A, 0x202F), *range(0xE0000, 0xE0080)}
_ESCAPES = {code: f"\\u{{{code:x}}}" for code in _CONTROLS | _HIDDEN | _REORDERING}
_JSON_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in _ESCAPES}


def show_text(value: object) -> str:
    r"""Text in which nothing is hidden: control and direction characters become escapes.

    Example:
        >>> show_text("ann\x1b[31m")
        'ann\\u{1b}[31m'
    """
    return str(value).translate(_ESCAPES)


def show_json(value: object) -> str:
    r"""JSON that is safe to print: what `show_text` escapes is escaped as JSON does it, so that it can be read back.

    Example:
        >>> show_json({"id": "ann\x9b31m", "name": "Ä"})
        '{\n  "id": "ann\\u009b31m",\n  "name": "Ä"\n}'
    """
    return json.dumps(value, indent=2, ensure_ascii=False).translate(_JSON_ESCAPES)


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
