"""Where and by what a result was made."""

import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from ruler.core import __version__
from ruler.core.optional import load_optional


@dataclass(frozen=True)
class Provenance:
    """Where and by what a row was made."""

    device: str
    ruler_version: str
    commit: str | None
    torch_version: str
    machine: str


@cache
def describe_process(device: str) -> Provenance:
    """The provenance of everything that this process makes on this device.

    Example:
        >>> describe_process("cpu").ruler_version == __version__
        True
    """
    processor = platform.processor() or "unknown processor"
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        processor = next(names, processor)
    machine = f"{processor}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    if device == "cuda":
        machine = f"{load_optional('torch', 'training models').cuda.get_device_name()}, {machine}"
    commit = None
    if _ask_git("ls-files", "--error-unmatch", "__init__.py") is not None:  # not another project's repository around us
        commit = _ask_git("rev-parse", "--short=12", "HEAD")
        commit = f"{commit} with changes" if _ask_git("status", "--porcelain", "--", ".") else commit
    return Provenance(
        device=device,
        ruler_version=__version__,
        commit=commit,
        torch_version=metadata.version("torch"),  # without loading it: only workers need it
        machine=machine,
    )


def _ask_git(*arguments: str) -> str | None:
    home = str(Path(__file__).parents[1])
    try:
        answer = subprocess.run(["git", "-C", home, *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
