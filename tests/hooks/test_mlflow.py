from importlib.util import find_spec

import pytest

import ruler

pytestmark = pytest.mark.skipif(not find_spec("mlflow"), reason="needs the extra mlflow")


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    yield mlflow
    while mlflow.active_run():
        mlflow.end_run()


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_report_is_logged_with_its_files(mlflow, report, tmp_path):
    from ruler.hooks.mlflow import log_report

    with mlflow.start_run() as run:
        log_report(report)
        log_report(report, step=40)
    logged = mlflow.get_run(run.info.run_id)
    assert logged.data.tags["ruler.verdict"] == report.verdict
    assert logged.data.tags["ruler.reason"] == report.reason
    assert logged.data.metrics["ruler/m2/effect"] == pytest.approx(report.metrics["m2"].effect, abs=1e-15)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "ruler/m2/effect")
    assert [one.step for one in history] == [0, 40]
    folder = mlflow.artifacts.download_artifacts(
        run_id=run.info.run_id, artifact_path="ruler/step-40", dst_path=str(tmp_path)
    )
    assert ruler.Report.load(folder).metrics["m4"].effect == report.metrics["m4"].effect


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_run_is_started_if_none_is_active_or_taken_by_its_id(mlflow, report):
    from ruler.hooks.mlflow import log_report

    log_report(report)
    first = mlflow.active_run().info.run_id
    mlflow.end_run()
    log_report(report, run_id=first, path="again")
    assert mlflow.active_run() is None
    assert {"ruler.verdict", "again.verdict"} <= mlflow.get_run(first).data.tags.keys()
