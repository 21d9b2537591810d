"""What made a row: package, commit, torch and machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from ruler.core import __version__
from ruler.core.optional import load_optional
from ruler.experiment.store import Provenance


def describe_run(device: str) -> Provenance:
    """The provenance of everything that this process and its workers make.

    Example:
        >>> describe_run("cpu").ruler_version == __version__
        True
    """
    machine = f"{_name_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    if device == "cuda":
        machine = f"{load_optional('torch', 'training models').cuda.get_device_name()}, {machine}"
    return Provenance(
        device=device,
        ruler_version=__version__,
        commit=_find_commit(),
        torch_version=version("torch"),  # without loading it: only workers need it
        machine=machine,
    )


def tell_time() -> str:
    """Now, in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _name_processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"


def _find_commit() -> str | None:
    """The commit of a source checkout, marked where files of the package differ from it; None when installed."""
    home = Path(__file__).parents[1]
    if _ask_git(home, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None  # some other project's repository around an installed package says nothing about us
    commit = _ask_git(home, "rev-parse", "--short=12", "HEAD")
    return f"{commit} with changes" if _ask_git(home, "status", "--porcelain", "--", ".") else commit


def _ask_git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
