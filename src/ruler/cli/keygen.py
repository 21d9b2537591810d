"""`ruler keygen`: a pair of keys, to sign reports and to check them."""

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: ruler keygen --out keys"


def keygen(out: Annotated[Path, typer.Option(help="Folder for the two keys.")] = Path()) -> None:
    """Make a pair of Ed25519 keys: the private one signs reports, the public one checks them.

    Writes ruler-key.pem, which only you can read, and ruler-key.pub.pem, to be
    handed to whoever shall check your reports. Neither is ever overwritten.
    Whoever has the private key can sign in your name.
    """
    from ruler.auditing.seal.signature import load_public_key, make_keys, name_key

    private, public = make_keys(out)
    typer.echo(f"private key: {private} (keep it to yourself)")
    typer.echo(f"public key: {public} (hand it on)")
    typer.echo(f"key id: {name_key(load_public_key(public))}")
