"""`python -m benchmarks`: search and the paper's protocol against what a user would run instead, in one run."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import cuda, measure, protocol, search, shards, studies
from benchmarks.document import PROTOCOL, SEARCH, Columns, list_cells
from ruler.core.errors import RulerError

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
    has_gpu = measure.has_cuda()
    machine = measure.describe_machine(has_gpu=has_gpu)
    title = f"nearest other row of every row, {machine['processor']}, {machine['cores']} cores"
    table = _make_table(title, SEARCH, n_words=4)
    timings: list[Any] = []
    numbers: dict[str, Any] = {"machine": machine, "search": timings}

    def save() -> None:
        if json_file is not None:
            measure.save_numbers(json_file, numbers)

    without_sklearn = tuple(name for name in search.ENGINES if "scikit" not in name)
    runs = [(search.SIZES, tuple(search.ENGINES)), (search.KINDS, without_sklearn), (search.LARGE, without_sklearn[:2])]
    if is_quick:
        runs = [((*search.SIZES[:1], *search.KINDS), without_sklearn)]
    with console.status("measuring ..."):
        for cases, engines in runs:
            for timing in search.time_cases(cases, engines):
                timings.append(timing)
                table.add_row(*list_cells(SEARCH, vars(timing)), end_section=timing.engine == engines[-1])
                save()
        for timing in cuda.time_on_cuda() if has_gpu else ():
            timings.append(timing)
            table.add_row(*list_cells(SEARCH, vars(timing)))
            save()
    console.print(table)
    with console.status("measuring ..."):
        numbers["protocol"] = list(protocol.time_protocol(QUICK_SETS if is_quick else SETS))
    shown = _make_table("two seeds, three fractions, four methods: from training to metrics", PROTOCOL, n_words=2)
    for found in numbers["protocol"]:
        shown.add_row(*list_cells(PROTOCOL, vars(found)))
    console.print(shown)
    save()
    for part in () if is_quick else _time_longer(console, has_gpu=has_gpu):
        numbers |= part
        save()


def _time_longer(console: Console, *, has_gpu: bool) -> Iterator[dict[str, list[Any]]]:
    """Time an audit of shards and, on a GPU, whole studies; yield all numbers so far after each."""
    with console.status("auditing three million rows ..."):
        audit = shards.time_shards()
    console.print(f"audit of {audit.n_rows:,} rows in shards: {audit.elapsed_s:.0f} s")
    known: dict[str, list[Any]] = {"shards": [audit], "studies": []}
    yield known
    for name in studies.TABULAR if has_gpu else ():
        with console.status(f"reproducing {name} ..."), TemporaryDirectory() as folder:
            try:
                (timing,) = studies.time_studies((name,), "cuda", Path(folder))
            except RulerError as error:  # one that cannot run must not cost the others
                console.print(f"ruler reproduce {name}: left out. {error}")
                continue
        console.print(f"ruler reproduce {name}: {timing.n_cells:,} cells in {timing.elapsed_s:.0f} s")
        known["studies"].append(timing)
        yield known


def _make_table(title: str, columns: Columns, *, n_words: int) -> Table:
    """An empty table, whose columns after so many hold numbers."""
    table = Table(title=title)
    for place, heading in enumerate(columns):
        table.add_column(heading, justify="left" if place < n_words else "right")
    return table


def main() -> None:
    """Compare RULER with its peers on this machine."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=compare_peers.__doc__)
    parser.add_argument("--quick", action="store_true", help="a minute or two instead of half an hour")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    chosen = parser.parse_args()
    compare_peers(is_quick=chosen.quick, json_file=chosen.json)
