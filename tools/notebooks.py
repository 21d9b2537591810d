"""Run the notebooks of docs/notebooks and write their outputs into them: ``python tools/notebooks.py [FILE]...``.

Jupyter is not needed: a cell is Python, and its last expression, what it prints and its figures are its outputs.
"""

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def run_notebook(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells, run in order in the current folder."""
    import matplotlib as mpl

    mpl.use("agg")
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = _run_cell("".join(cell["source"]), names, number)
    return notebook


def _run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    body = ast.parse(source, f"cell {number}").body
    last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    printed, value = io.StringIO(), None
    with redirect_stdout(printed), redirect_stderr(printed):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"cell {number}", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": _as_lines(printed.getvalue())})
    if value is not None and not source.rstrip().endswith(";"):
        data = {"text/plain": _as_lines(repr(value))}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = _as_lines(value._repr_html_())
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs + _take_figures()


def _take_figures() -> list[dict[str, Any]]:
    from matplotlib import pyplot as plt

    outputs = []
    for number in plt.get_fignums():
        figure, file = plt.figure(number), io.BytesIO()
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
        data = {"image/png": base64.b64encode(file.getvalue()).decode() + "\n"}
        outputs.append({"data": data, "metadata": {"alt": figure.get_label()}, "output_type": "display_data"})
    plt.close("all")
    return outputs


def _as_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(paths: list[str]) -> None:
    """Run these notebooks, or all, and write them back."""
    for path in map(Path, paths or sorted(map(str, FOLDER.glob("*.ipynb")))):
        notebook = run_notebook(path)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
