"""`ruler data`: where datasets are, and whether they are the right ones."""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from ruler.core.errors import RulerError
from ruler.core.locations import cache_folder, data_folder
from ruler.data import DATASETS, describe_dataset, fetch_dataset, locate

app = typer.Typer(
    help="Where data is, and whether it is the right data.", no_args_is_help=True, rich_markup_mode="rich"
)

Names = Annotated[list[str] | None, typer.Argument(help="Keys of datasets, as `ruler data list` shows them.")]
_MISUSE = 2


@app.command("list", epilog="Example: ruler data list")
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


@app.command(epilog="Example: ruler data fetch adult phoneme")
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
        _fail("fetch must be given either names or --all. Example: ruler data fetch adult")
    if labels is not None:
        _fetch_labelled(names or [], labels)
        return
    wanted = list(DATASETS) if every else _known(names or [])
    faults = [_fetch_one(name) for name in wanted]
    if any(faults):
        raise typer.Exit(_MISUSE)


@app.command(epilog="Example: ruler data check adult")
def check(names: Names = None) -> None:
    """Load datasets and compare their content with the right version; by default all that are here."""
    wanted = _known(names or list(DATASETS))
    faults = [_check_one(name, is_needed=bool(names)) for name in wanted]
    if any(faults):
        raise typer.Exit(_MISUSE)


def _fetch_labelled(names: list[str], labels: Path) -> None:
    """Fetch faces with what is known of their people; a copy in RULER_DATA, which is read first, is the user's."""
    known = _known(names)
    if len(known) != 1 or DATASETS[known[0]].kind != "faces":
        faces = [key for key, entry in DATASETS.items() if entry.kind == "faces"]
        _fail(f"--labels must go with {' or '.join(faces)} alone; got {' '.join(known) or 'no name'}.")
    where = locate(DATASETS[known[0]])
    if where.place == "RULER_DATA":
        _fail(f"--labels must be for a download; got {where.path}, which is read first. Add the array gender to it.")
    try:
        typer.echo(f"{known[0]}: {fetch_dataset(known[0], labels=labels, progress=True)}")
    except RulerError as error:
        _fail(f"{known[0]}: {error}")


def _fetch_one(name: str) -> bool:
    """Whether the set is still not here."""
    try:
        if _is_here(name):
            typer.echo(f"{name}: here already")
        else:
            typer.echo(f"{name}: {fetch_dataset(name, progress=True)}")
    except RulerError as error:
        typer.echo(f"{name}: {error}", err=True)
        return True
    return False


def _is_here(name: str) -> bool:
    where = locate(DATASETS[name])
    if where.place == "to download":
        return False
    try:
        describe_dataset(name)
    except RulerError:
        if where.place == "cache":  # our own copy may be replaced, a folder of the user's may not
            return False
        raise
    return True


def _check_one(name: str, *, is_needed: bool) -> bool:
    """Whether the set is wrong, or absent although it was asked for."""
    if locate(DATASETS[name]).place == "to download":
        typer.echo(f"{name}: not here. Run: ruler data fetch {name}", err=is_needed)
        return is_needed
    try:
        found = describe_dataset(name)
    except RulerError as error:
        typer.echo(f"{name}: {error}", err=True)
        return True
    typer.echo(f"{name}: ok, {found}")
    return False


def _known(names: list[str]) -> list[str]:
    try:
        for name in names:
            DATASETS[name]
        return names
    except RulerError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(_MISUSE)
