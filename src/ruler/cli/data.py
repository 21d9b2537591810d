"""`ruler data`: where datasets are, and whether they are the right ones."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ruler.cli import MISUSE
from ruler.cli.options import PlainCommand, PlainGroup
from ruler.core.errors import InputError, RulerError
from ruler.core.files import cache_folder, data_folder
from ruler.data import DATASETS, describe_dataset, fetch_dataset, locate

app = typer.Typer(
    cls=PlainGroup,
    help="Where data is, and whether it is the right data.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Names = Annotated[list[str] | None, typer.Argument(help="Keys of datasets, as `ruler data list` shows them.")]


@app.command("list", cls=PlainCommand, epilog="Example: ruler data list")
def list_sets() -> None:
    """Show every dataset, its kind and size, and where it is now."""
    table = Table("name", "kind", "shown as", "size", "published at", "is now")
    for name, entry in DATASETS.items():
        place: str = locate(entry).place
        if place == "to download" and entry.download is None:
            place = "to get by hand"
        table.add_row(name, entry.kind, entry.title, entry.size, entry.origin, place)
    console = Console()
    if not console.is_terminal:  # a pipe has no width: never cut what a script reads
        console = Console(width=220)
    console.print(table)
    typer.echo(f"RULER_DATA: {data_folder() if os.environ.get('RULER_DATA') else 'not set'}")
    typer.echo(f"cache: {cache_folder()}")


@app.command(cls=PlainCommand, epilog="Example: ruler data fetch adult phoneme")
def fetch(
    names: Names = None,
    every: Annotated[bool, typer.Option("--all", help="Fetch every dataset that is not here yet.")] = False,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="With lfw: a table of person and female or male, which the study faces needs and no home publishes."
        ),
    ] = None,
) -> None:
    """Download datasets into the cache, unless the right version is here already."""
    if every == bool(names):
        raise InputError("fetch must be given either names or --all. Example: ruler data fetch adult")
    if labels is not None:
        faces = [key for key, entry in DATASETS.items() if entry.kind == "faces"]
        if names is None or len(names) != 1 or names[0] not in faces:
            got = " ".join(names or ["no name"])
            raise InputError(f"--labels must go with {' or '.join(faces)} alone; got {got}.")
        where = locate(DATASETS[names[0]])
        if where.place == "RULER_DATA":
            raise InputError(
                f"--labels must be for a download; got {where.path}, which is read first. Add the array gender to it."
            )

    def fetch_one(name: str) -> str:
        if labels is not None:
            return str(fetch_dataset(name, labels=labels, progress=True))
        where = locate(DATASETS[name])
        if where.place != "to download":
            try:
                describe_dataset(name)
                return "here already"
            except RulerError:
                if where.place != "cache":  # our own copy may be replaced, a folder of the user's may not
                    raise
        return str(fetch_dataset(name, progress=True))

    _do_each(list(DATASETS) if every else names or [], fetch_one)


@app.command(cls=PlainCommand, epilog="Example: ruler data check adult")
def check(names: Names = None) -> None:
    """Load datasets and compare their content with the right version; by default all that are here."""

    def check_one(name: str) -> str:
        if locate(DATASETS[name]).place != "to download":
            return f"ok, {describe_dataset(name)}"
        absent = f"not here. Run: ruler data fetch {name}"
        if names:
            raise InputError(absent)
        return absent

    _do_each(names or list(DATASETS), check_one)


def _do_each(names: list[str], work: Callable[[str], str]) -> None:
    """Say what the work returns for each dataset; report a failed one and continue, and exit with 2 in the end."""
    for name in names:
        DATASETS[name]
    has_failed = False
    for name in names:
        try:
            typer.echo(f"{name}: {work(name)}")
        except RulerError as error:
            typer.echo(f"{name}: {error}", err=True)
            has_failed = True
    if has_failed:
        raise typer.Exit(MISUSE)
