"""Reports in MLflow."""

import tempfile
from pathlib import Path

from ruler.auditing.findings import Report
from ruler.core.optional import load_optional
from ruler.core.text import show_text
from ruler.hooks.numbers import list_numbers

_LONGEST_TAG = 5000


def log_report(report: Report, *, step: int | None = None, run_id: str | None = None, path: str = "ruler") -> None:
    """Log a report to an MLflow run: its numbers as metrics, the verdict as tags, and its files as artifacts.

    Args:
        report: Of an audit.
        step: Training step that it belongs to; its files then lie in a folder of their own.
        run_id: Of the run; None takes the active one, which MLflow starts if there is none.
        path: Folder of the files among the run's artifacts, and what the names of metrics and tags begin with.

    Raises:
        MissingPackageError: MLflow is not installed.
    """
    mlflow = load_optional("mlflow", "logging to MLflow")
    run_id = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    client = mlflow.MlflowClient()
    mlflow.log_metrics(list_numbers(report, path), step=step, run_id=run_id)
    for name, text in (("verdict", report.verdict), ("reason", report.reason)):
        client.set_tag(run_id, f"{path}.{name}", show_text(text)[:_LONGEST_TAG])
    with tempfile.TemporaryDirectory() as folder:
        report.save(Path(folder) / "report")
        client.log_artifacts(run_id, Path(folder) / "report", path if step is None else f"{path}/step-{step}")
