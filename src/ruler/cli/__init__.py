"""The command line: one file a verb."""

import sys

from ruler.core.errors import MissingPackageError, RulerError
from ruler.core.optional import load_optional

_MISUSE = 2
_INTERRUPTED = 130


def main() -> None:
    """Run `ruler`; what goes wrong is said in one line, without a traceback."""
    try:
        load_optional("typer", "the command line")
        load_optional("rich", "the command line")
    except MissingPackageError as error:
        sys.exit(_complain(error))
    from ruler.cli.app import app

    try:
        app()
    except RulerError as error:
        sys.exit(_complain(error))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(_INTERRUPTED)


def _complain(error: Exception) -> int:
    print(f"ruler: {error}", file=sys.stderr)
    return _MISUSE
