"""The table of verbs."""

from typing import Annotated

import typer

import ruler
from ruler.cli import audit as audit_verb
from ruler.cli import data, keygen, verify
from ruler.cli.demo import demo
from ruler.cli.reproduce import EXAMPLE, SpreadCommand, reproduce
from ruler.core.errors import InputError

app = typer.Typer(
    name="ruler",
    help="RULER verifies machine unlearning in a model's representations.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: ruler demo --out ruler-demo")(demo)
app.command(cls=audit_verb.AuditCommand, epilog=audit_verb.EXAMPLE)(audit_verb.audit)
app.command(epilog=verify.EXAMPLE)(verify.verify)
app.command(epilog=keygen.EXAMPLE)(keygen.keygen)
app.command(cls=SpreadCommand, epilog=EXAMPLE)(reproduce)
app.add_typer(data.app, name="data")


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
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


@app.callback()
def configure(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """RULER verifies machine unlearning in a model's representations."""
