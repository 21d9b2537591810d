"""A row of the results: its columns, with what SQLite keeps in each, and where and by what it was made."""

import os
import platform
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from ruler.auditing.contrasts import OWN
from ruler.core import __version__
from ruler.core.optional import load_optional

CELL = {
    "study": "TEXT NOT NULL",
    "dataset": "TEXT NOT NULL",
    "method": "TEXT NOT NULL",
    "forget_fraction": "REAL NOT NULL",
    "seed": "INTEGER NOT NULL",
    "learning_rate": "REAL",
    "batch_size": "INTEGER",
    "forget_seed": "INTEGER NOT NULL",
    "teacher_seed": "INTEGER",
    "other_seed": "INTEGER",
}
SCORES = {
    "n_forget": "INTEGER",
    **dict.fromkeys(("m1", "m2", "m2_mean_baseline", "m3", "m4", "mia"), "REAL"),
    **dict.fromkeys(("forget_accuracy", "retain_accuracy", "test_accuracy"), "REAL"),
}
_CONTROLS = {
    "m4_held_out": "REAL",
    **dict.fromkeys(("m4_placebo", "m4_placebo_sd", "m4_placebo_low", "m4_placebo_high", "m4_placebo_p"), "REAL"),
    "n_groups": "INTEGER",
}
DECIDING = tuple(name for name, contrast in OWN.items() if contrast.decides)
"""Contrasts of an audit; rows from earlier versions lack some of them."""
FAMILIES = ("outputs", "layers")
"""What an audit judges apart: what the model says, and what its layers hold."""
_AUDIT = {
    **dict.fromkeys(("verdict", *(f"{name}_verdict" for name in (*FAMILIES, *DECIDING)), "seen"), "TEXT"),
    **{f"{name}_remaining{end}": "REAL" for name in FAMILIES for end in ("", "_low", "_high")},
    **{f"{name}_{value}": "REAL" for name in DECIDING for value in ("effect", "p_value")},
    **dict.fromkeys(("damage_similarity", "damage_skill"), "REAL"),
}
_VARIANT = {"engine": "TEXT NOT NULL", "models": "TEXT NOT NULL"}
DEFAULTS = {"architecture": "tabular_mlp", "forget_choice": "random", "size": "full"}
"""Of later columns that every row has."""
LATER_COLUMNS = {
    **dict.fromkeys(("architecture", "forget_choice", "precision", "size", "model"), "TEXT"),
    **{name: f"TEXT NOT NULL DEFAULT '{value}'" for name, value in DEFAULTS.items()},
    **_CONTROLS,
    **_AUDIT,
    **dict.fromkeys(("layers", "peers", "reasons", "recipe", "options", "choice"), "TEXT"),
    **dict.fromkeys(("unlearning_s", "retraining_s"), "REAL"),
}
"""Later columns: a file that lacks some of them gets them when it is opened."""
_PROVENANCE = {
    "device": "TEXT",
    "elapsed_s": "REAL",
    **dict.fromkeys(("ruler_version", "commit", "torch_version", "machine", "finished_at"), "TEXT"),
}
FIRST_COLUMNS = CELL | SCORES | _VARIANT | _PROVENANCE
COLUMNS = FIRST_COLUMNS | LATER_COLUMNS
NUMERIC = (
    *("learning_rate", "batch_size", "teacher_seed", "other_seed", *SCORES),
    *(name for name, kind in LATER_COLUMNS.items() if not kind.startswith("TEXT")),
)
ORDER = (
    *("study", "dataset", "forget_fraction", "forget_seed", "seed", "other_seed"),
    *("method", "learning_rate", "teacher_seed", "architecture", "forget_choice"),
)


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
