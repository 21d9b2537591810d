"""`python -m benchmarks`: search and the paper's protocol against what a user would run instead, in one run."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import cuda, measure, protocol, search, shards, studies
from ruler.core.errors import RulerError
from ruler.core.files import write_atomically

QUICK_SETS = ("breast_cancer",)
SETS = ("breast_cancer", "phoneme", "magic")


def compare_peers(*, is_quick: bool = False, json_file: Path | None = None) -> None:
    """Time neighbour search and the protocol against the peers; show tables and save all numbers after each result.

    Args:
        is_quick: Only (20k, 128) on every kind of data and one dataset, a minute or two. Otherwise also an audit of
            three million rows in shards (1.5 GB in the temporary folder) and, where there is a GPU,
            every study on the paper's ten tables: half an hour in all.
        json_file: Where the numbers go; None keeps none.
    """
    console = Console()
    if not console.is_terminal:  # a pipe has no width: never cut what a script reads
        console = Console(width=140)
    machine = measure.describe_machine()
    table = _table(machine)
    timings: list[dict[str, Any]] = []
    numbers: dict[str, Any] = {"machine": machine, "search": timings}
    without_sklearn = tuple(name for name in search.ENGINES if "scikit" not in name)
    runs = [(search.SIZES, tuple(search.ENGINES)), (search.KINDS, without_sklearn), (search.LARGE, without_sklearn[:2])]
    if is_quick:
        runs = [((*search.SIZES[:1], *search.KINDS), without_sklearn)]
    with console.status("measuring ..."):
        for cases, engines in runs:
            for timing in search.time_cases(cases, engines):
                timings.append(timing.as_dict())
                table.add_row(*_row(timings[-1]), end_section=timing.engine == engines[-1])
                _save(numbers, json_file)
        if measure.has_cuda():
            machine |= cuda.describe_device()
            for timing in cuda.time_on_cuda():
                timings.append(timing.as_dict())
                table.add_row(*_row(timings[-1]))
                _save(numbers, json_file)
    console.print(table)
    with console.status("measuring ..."):
        numbers["protocol"] = [found.as_dict() for found in protocol.time_protocol(QUICK_SETS if is_quick else SETS)]
    console.print(_draw_protocol(numbers["protocol"]))
    _save(numbers, json_file)
    for part in () if is_quick else _time_longer(console):
        _save(numbers | part, json_file)


def _save(numbers: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(numbers, indent=2) + "\n")


def _time_longer(console: Console) -> Iterator[dict[str, list[dict[str, Any]]]]:
    """Time an audit of shards and, on a GPU, whole studies; yield all numbers so far after each."""
    with console.status("auditing three million rows ..."):
        audit = shards.time_shards()
    console.print(f"audit of {audit.n_rows:,} rows in shards: {audit.elapsed_s:.0f} s")
    known: dict[str, list[dict[str, Any]]] = {"shards": [audit.as_dict()], "studies": []}
    yield known
    for name in studies.TABULAR if measure.has_cuda() else ():
        with console.status(f"reproducing {name} ..."), TemporaryDirectory() as folder:
            try:
                (timing,) = studies.time_studies((name,), "cuda", Path(folder))
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


def main() -> None:
    """Compare RULER with its peers on this machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=compare_peers.__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two instead of half an hour")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    chosen = parser.parse_args()
    compare_peers(is_quick=chosen.quick, json_file=chosen.json)
