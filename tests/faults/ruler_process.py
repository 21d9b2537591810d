"""Run `ruler` as users do: in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

VERB = [sys.executable, "-c", "from ruler.cli import main; main()"]
STUDY = ["reproduce", "primary", "--datasets", "breast_cancer", "--methods", "gradient_ascent", "--jobs", "1"]
STUDY += ["--engine", "protocol"]  # it keeps models, whose writing may fail


def run_ruler(*words: str | Path, cache: Path, before: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = [*before, *VERB, *map(str, words)]
    return subprocess.run(command, env=os.environ | {"RULER_CACHE": str(cache)}, capture_output=True, text=True)


def start_ruler(*words: str | Path, cache: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*VERB, *map(str, words)],
        env=os.environ | {"RULER_CACHE": str(cache)},
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
