"""`ruler verify`: a saved report -> what holds and what does not, and an exit status."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "Example: ruler verify report --key keys/ruler-key.pub.pem"
_WORDS = {True: "holds", False: "DOES NOT HOLD", None: "not checked"}
_FAULT = 1


def verify(
    folder: Annotated[Path, typer.Argument(help="Folder that an audit wrote.")],
    key: Annotated[Path | None, typer.Option(help="Public key that must have signed the report.")] = None,
    rerun: Annotated[
        bool, typer.Option("--rerun", help="Audit the inputs again, if they are still there, and compare to the bit.")
    ] = False,
) -> None:
    """Is this report what the audit wrote, signed by whom it should be, and does its verdict follow?

    Checks that no file was changed, added or removed; that the seal is signed
    by the key; that all numbers lie in their ranges and agree with each other;
    that the verdict follows from them; and that the page says what they say.

    With --rerun the audit is repeated from the inputs that the report names;
    code that its TOML file names is executed, after a line that says so.

    docs/evidence.md says what this proves and what it does not.

    Exit status: 0 all that was checked holds, 1 something does not, 2 misuse.
    """
    from ruler.auditing.seal.check import Check, check_report
    from ruler.core.text import show_text

    checks = list(check_report(folder, key=key))
    if rerun and any(check.holds is False for check in checks):
        checks.append(Check("rerun", None, "The audit was not repeated, since the report itself does not hold."))
    elif rerun:
        from ruler.auditing.seal.rerun import check_rerun
        from ruler.neighbors import find_neighbors

        checks += check_rerun(folder, search=lambda device: partial(find_neighbors, device=device))
    for check in checks:
        typer.echo(f"{_WORDS[check.holds]:>13}  {check.name}: {show_text(check.message)}")
    n_faults = sum(check.holds is False for check in checks)
    if n_faults:
        typer.echo(f"\nDo not rely on this report: {n_faults} of {len(checks)} checks failed.")
        raise typer.Exit(_FAULT)
    unchecked = [check.name for check in checks if check.holds is None]
    rest = f" Not checked: {', '.join(unchecked)}." if unchecked else ""
    typer.echo(f"\nEverything that was checked holds.{rest}")
