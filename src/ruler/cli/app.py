"""The table of verbs: each has a file of its name, which is loaded when it is asked for."""

from importlib import import_module
from typing import Annotated

import typer
from typer.core import TyperCommand

import ruler
from ruler.core.errors import InputError

VERBS = ("demo", "audit", "verify", "keygen", "reproduce", "data")


def make_app(verb: str = "") -> typer.Typer:
    """The command `ruler` with all verbs, or only with the one that is asked for: loading the others takes a second.

    A verb's file holds a function of its name, ``EXAMPLE`` and perhaps ``COMMAND``, which parses its words; or an
    ``app`` with verbs of its own.

    Args:
        verb: The first word of the user; one that is no verb gives all, but ``--version`` needs none.
    """
    app = typer.Typer(
        name="ruler",
        help="RULER verifies machine unlearning in a model's representations.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(configure)
    for name in (verb,) if verb in VERBS else () if verb == "--version" else VERBS:
        module = import_module(f"ruler.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            parser = getattr(module, "COMMAND", TyperCommand)
            app.command(cls=parser, epilog=module.EXAMPLE)(getattr(module, name))
    app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)
    return app


def bench() -> None:
    """Say where the benchmarks went."""
    raise InputError(
        "verb must be one that `ruler --help` lists; got bench, which left the package. "
        "Run `make bench` in a checkout of the repository."
    )


def _show_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ruler {ruler.__version__}")
        raise typer.Exit


def configure(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """RULER verifies machine unlearning in a model's representations."""
