"""`ruler bench`: against the peers, side by side in one run."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ruler.core.errors import RulerError
from ruler.core.files import write_atomically

_QUICK_SETS = ("breast_cancer",)
_SETS = ("breast_cancer", "phoneme", "magic")


def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Only (20k, 128) on every kind of data, a minute or two.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write all numbers to this file.")] = None,
) -> None:
    """Time exact neighbour search and the paper's protocol against what a user would run instead.

    Without --quick also an audit of three million rows in shards (1.5 GB in
    the temporary folder) against its plan and, where there is a GPU, every
    study on the paper's ten tables: half an hour in all.
    """
    from ruler.bench.measure import describe_machine, has_cuda
    from ruler.bench.protocol import time_protocol
    from ruler.bench.search import ENGINES, KINDS, SIZES, time_cases

    console = Console()
    if not console.is_terminal:  # a pipe has no width: never cut what a script reads
        console = Console(width=140)
    machine = describe_machine()
    table = _table(machine)
    timings: list[dict[str, Any]] = []
    numbers: dict[str, Any] = {"machine": machine, "search": timings}
    without_sklearn = tuple(name for name in ENGINES if "scikit" not in name)
    runs = [((*SIZES[:1], *KINDS), without_sklearn)] if quick else [(SIZES, tuple(ENGINES)), (KINDS, without_sklearn)]
    with console.status("measuring ..."):
        for cases, engines in runs:
            for timing in time_cases(cases, engines):
                timings.append(timing.as_dict())
                table.add_row(*_row(timings[-1]), end_section=timing.engine == engines[-1])
                _save(numbers, json_file)
        if has_cuda():
            from ruler.bench.cuda import describe_device, time_on_cuda

            machine |= describe_device()
            for timing in time_on_cuda():
                timings.append(timing.as_dict())
                table.add_row(*_row(timings[-1]))
                _save(numbers, json_file)
    console.print(table)
    with console.status("measuring ..."):
        numbers["protocol"] = [found.as_dict() for found in time_protocol(_QUICK_SETS if quick else _SETS)]
    console.print(_draw_protocol(numbers["protocol"]))
    _save(numbers, json_file)
    for part in () if quick else _time_longer(console):
        _save(numbers | part, json_file)


def _save(numbers: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(numbers, indent=2) + "\n")


def _time_longer(console: Console) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """What takes minutes: an audit of shards, and on a GPU whole studies; all that is known, whenever there is more."""
    from ruler.bench.measure import has_cuda
    from ruler.bench.shards import time_shards
    from ruler.bench.studies import TABULAR, time_studies

    with console.status("auditing three million rows ..."):
        shards = time_shards()
    console.print(
        f"audit of {shards.n_rows:,} rows in shards: planned {shards.planned_s:.0f} s, took {shards.elapsed_s:.0f} s"
    )
    known: dict[str, list[dict[str, Any]]] = {"shards": [shards.as_dict()], "studies": []}
    yield known
    for name in TABULAR if has_cuda() else ():
        with console.status(f"reproducing {name} ..."), TemporaryDirectory() as folder:
            try:
                (timing,) = time_studies((name,), "cuda", Path(folder))
            except RulerError as error:  # one that cannot run must not cost the others
                console.print(f"ruler reproduce {name}: left out. {error}")
                continue
        console.print(f"ruler reproduce {name}: {timing.n_cells:,} cells in {timing.elapsed_s:.0f} s")
        known["studies"].append(timing.as_dict())
        yield known


def _draw_protocol(timings: list[dict[str, Any]]) -> Table:
    table = Table("dataset", title="two seeds, three fractions, four methods: from training to metrics")
    for heading in ("plain seconds", "ruler seconds", "RULER is faster by"):
        table.add_column(heading, justify="right")
    for found in timings:
        table.add_row(
            found["dataset"], f"{found['plain_s']:.1f}", f"{found['ruler_s']:.1f}", f"{found['speedup']:.1f}x"
        )
    return table


def _table(machine: dict[str, Any]) -> Table:
    title = f"nearest other row of every row, {machine['processor']}, {machine['cores']} cores"
    table = Table("data", "rows", "width", "engine", title=title)
    for heading in ("seconds", "RULER faster by", "extra MB", "sgemm peaks"):
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
