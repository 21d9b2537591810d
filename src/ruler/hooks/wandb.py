"""Reports in Weights & Biases."""

import tempfile
from pathlib import Path
from typing import Any

from ruler.auditing.findings import Report
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.text import show_text
from ruler.hooks.numbers import list_numbers


def log_report(report: Report, *, step: int | None = None, run: Any = None, name: str = "ruler") -> None:
    """Log a report to a W&B run: its numbers, the verdict in the summary, the page, and all its files as an artifact.

    Args:
        report: Of an audit.
        step: Training step that it belongs to; logged as ``ruler/step``, so that it does not collide with W&B's own
            count of steps.
        run: Of ``wandb.init``; None takes the active one.
        name: What names of numbers begin with; the artifact is called ``ruler-<id of the run>``.

    Raises:
        InputError: No run was started.
        MissingPackageError: W&B is not installed.
    """
    wandb = load_optional("wandb", "logging to Weights & Biases")
    run = run or wandb.run
    if run is None:
        raise InputError("run must be a started run; got none. Call wandb.init() first.")
    numbers = list_numbers(report, name) | ({} if step is None else {f"{name}/step": step})
    run.summary.update({f"{name}/verdict": report.verdict, f"{name}/reason": show_text(report.reason)})
    with tempfile.TemporaryDirectory() as place:
        folder = report.save(Path(place) / "report")
        run.log({**numbers, f"{name}/report": wandb.Html((folder / "report.html").read_text(encoding="utf-8"))})
        about = {"verdict": report.verdict} | ({} if step is None else {"step": step})
        artifact = wandb.Artifact(f"{name}-{run.id}", type="ruler-report", metadata=about)
        for path in sorted(folder.iterdir()):  # add_dir prints a line
            artifact.add_file(str(path), name=path.name)
        run.log_artifact(artifact)
