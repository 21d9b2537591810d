"""The command line: one file per verb."""

import os
import signal
import sys
import tempfile
import threading
import traceback

from ruler.core import __version__
from ruler.core.errors import RulerError
from ruler.core.optional import load_optional
from ruler.core.text import show_text

INTERRUPTED, TERMINATED = 130, 143
MISUSE = 2
_OUR_FAULT = 70
_LONGEST_REASON = 300


class Terminated(BaseException):
    """SIGTERM: somebody, such as a scheduler, asks this process to end."""


def main() -> None:
    """Run `ruler`; what goes wrong is said in one line, without a traceback."""
    if threading.current_thread() is threading.main_thread():  # no other may
        signal.signal(signal.SIGTERM, _terminate)
    try:
        load_optional("typer", "the command line")
        load_optional("rich", "the command line")
        from ruler.cli.app import make_app

        make_app(_find_verb())()
    except RulerError as error:
        print(f"ruler: {' '.join(str(error).splitlines())}", file=sys.stderr)
        sys.exit(MISUSE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Terminated:
        print("ruler: stopped by SIGTERM; nothing that was finished is lost", file=sys.stderr)
        sys.exit(TERMINATED)
    except SystemExit:
        raise
    except BaseException as error:
        from ruler.core.readers.safety import is_panic  # loads NumPy

        if not isinstance(error, Exception) and not is_panic(error):
            raise
        sys.exit(_admit(error))


def _find_verb() -> str:
    """The first word of the user, also of a line that the shell completes; empty if there is none."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS") or ""
    words = line.split() or sys.argv
    return words[1] if len(words) > 1 else ""


def _terminate(number: int, frame: object) -> None:
    """Leave as Ctrl-C does, so that workers are stopped and drafts removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # while that is done
    raise Terminated


def _admit(error: BaseException) -> int:
    """Say that the fault is RULER's, and keep the traceback in a file that can be sent along."""
    reason = " ".join(str(error).split())[:_LONGEST_REASON].rstrip(".")
    what = show_text(f"{type(error).__name__}: {reason}" if reason else type(error).__name__)
    try:
        handle, path = tempfile.mkstemp(prefix="ruler-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(f"ruler {__version__}, Python {sys.version}\n{' '.join(sys.argv)}\n")
            file.writelines(traceback.format_exception(error))
        advice = f"Report it with the file {path}, which holds the details."
    except OSError:
        advice = "Report it with this line and the command."
    print(f"ruler: an error of RULER {__version__} itself, not of your data: {what}. {advice}", file=sys.stderr)
    return _OUR_FAULT
