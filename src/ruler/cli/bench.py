"""`ruler bench`: against the peers, side by side in one run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Only (20k, 128) on every kind of data, under a minute.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all numbers to this file.")] = None,
) -> None:
    """Time exact neighbour search against faiss, scikit-learn and a plain float64 loop."""
    from ruler.bench.measure import describe_machine
    from ruler.bench.search import ENGINES, KINDS, SIZES, time_cases

    console = Console()
    machine = describe_machine()
    table = _table(machine)
    timings: list[dict[str, Any]] = []
    without_sklearn = tuple(name for name in ENGINES if "scikit" not in name)
    runs = [((*SIZES[:1], *KINDS), without_sklearn)] if quick else [(SIZES, tuple(ENGINES)), (KINDS, without_sklearn)]
    with console.status("measuring ..."):
        for cases, engines in runs:
            for timing in time_cases(cases, engines):
                timings.append(timing.as_dict())
                table.add_row(*_row(timings[-1]), end_section=timing.engine == engines[-1])
    console.print(table)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({"machine": machine, "search": timings}, indent=2) + "\n", encoding="utf-8")


def _table(machine: dict[str, Any]) -> Table:
    title = f"nearest other row of every row, {machine['processor']}, {machine['cores']} cores"
    table = Table("data", "rows", "width", "engine", title=title)
    for heading in ("seconds", "RULER is faster by", "extra MB", "share of sgemm peak"):
        table.add_column(heading, justify="right")
    return table


def _row(timing: dict[str, Any]) -> list[str]:
    return [
        timing["kind"],
        f"{timing['n_rows']:,}",
        str(timing["width"]),
        timing["engine"],
        f"{timing['elapsed_s']:.2f}",
        f"{timing['speedup']:.2f}x",
        f"{timing['extra_mb']:.0f}",
        f"{timing['sgemm_share']:.2f}",
    ]
