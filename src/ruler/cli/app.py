"""The table of verbs: each has a file of its name, which is loaded when it is asked for."""

from importlib import import_module
from typing import Annotated

import typer

import ruler
from ruler.cli.options import PlainCommand, PlainGroup
from ruler.core.errors import InputError

VERBS = {
    "demo": "Train on images of digits, unlearn 300 of them in two ways, and audit both.",
    "audit": "How much does a model still hold of its forget records?",
    "verify": "Is this report what the audit wrote, signed by whom it should be, and does its verdict follow?",
    "keygen": "Make a pair of Ed25519 keys: the private one signs reports, the public one checks them.",
    "compare": "Compare unlearning methods on one dataset: verdicts, what remains, what is kept, cost, peers' metrics.",
    "reproduce": "Run a study of the paper and set its tables and figures beside the published numbers.",
    "data": "Where data is, and whether it is the right data.",
}
"""Each with its line in `ruler --help`, which loads none of them."""

_LISTING = ("", "-h", "--help", "--version")


def make_app(verb: str | None = None) -> typer.Typer:
    """The command `ruler` with all verbs, or with the one that is asked for: loading the others takes a second.

    A verb's file holds a function of its name, ``EXAMPLE`` and perhaps ``COMMAND``, which parses its words; or an
    ``app`` with verbs of its own.

    Args:
        verb: The first word of the user; if it is no verb, names and lines stand for all of them. None loads all.
    """
    app = typer.Typer(
        name="ruler",
        cls=PlainGroup,
        help="RULER verifies machine unlearning in a model's representations.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(configure)
    is_listed = verb is not None and verb not in VERBS and (verb in _LISTING or not verb.startswith("-"))
    for name, line in VERBS.items() if is_listed else ():
        app.command(name, help=line)(configure)
    for name in () if is_listed else (verb,) if verb in VERBS else VERBS:
        module = import_module(f"ruler.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            parser = getattr(module, "COMMAND", PlainCommand)
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
