"""What several verbs share: help, the folder of results, the executor ray, and how a run is stopped."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ruler.cli import INTERRUPTED, TERMINATED, Terminated
from ruler.core.errors import InputError
from ruler.core.files import check_writable
from ruler.core.registry import Registry

if TYPE_CHECKING:
    from ruler.core.cluster import ClusterSettings


class _PlainFlags:
    """For a command: its switches have no ``<bool>`` beside them."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, the switches with an empty type."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False):
                param.metavar = ""
        return params


class PlainCommand(_PlainFlags, TyperCommand):
    """A verb."""


class PlainGroup(_PlainFlags, TyperGroup):
    """A verb with verbs of its own."""


def check_out(folder: Path) -> None:
    """Refuse a folder for results that cannot be one, before anything is computed."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder; got the file {folder}. Choose another name.")
    check_writable(folder)


@contextmanager
def resumable(out: Path) -> Iterator[None]:
    """After Ctrl-C or SIGTERM, say that the same command goes on where it stopped, and exit."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as error:
        typer.echo(f"Stopped. What is finished is kept in {out}: run the same command again to resume.", err=True)
        raise typer.Exit(TERMINATED if isinstance(error, Terminated) else INTERRUPTED) from error


def choose_cluster(
    executor: str, known: Iterable[str] = ("local", "ray"), **needs: float | None
) -> "ClusterSettings | None":
    """What a job takes of a cluster; None for an executor without one.

    Args:
        needs: Options of `ClusterSettings`, None where the user gave none.

    Raises:
        InputError: An unknown name, an option of a cluster without one, or a value that it cannot have.
    """
    given: dict[str, Any] = {name: value for name, value in needs.items() if value is not None}
    Registry("executor", dict.fromkeys(known))[executor]
    if executor == "ray":
        from ruler.core.cluster import ClusterSettings  # loads NumPy

        return ClusterSettings(**given)
    if given:
        name = next(iter(given)).replace("_", "-")
        raise InputError(f"--{name} must be used with --executor ray; got --executor {executor}. Omit it.")
    return None
