from importlib.util import find_spec

import pytest

from ruler.core.errors import InputError

pytestmark = pytest.mark.skipif(not find_spec("wandb"), reason="needs the extra wandb")


def test_a_report_is_logged_offline_with_its_files(report, tmp_path, monkeypatch):
    import wandb

    from ruler.hooks.wandb import log_report

    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with pytest.raises(InputError, match=r"run must be a started run; got none. Call wandb.init\(\) first."):
        log_report(report)
    with wandb.init(mode="offline", project="ruler", dir=tmp_path, id="audited") as run:
        log_report(report, step=40)
        summary = dict(run.summary)
    assert summary["ruler/verdict"] == report.verdict
    assert summary["ruler/m2/effect"] == report.metrics["m2"].effect
    assert summary["ruler/step"] == 40
    saved = {path.read_bytes() for path in report.save(tmp_path / "report").iterdir()}
    staged = {path.read_bytes() for path in (tmp_path / "WANDB_DATA_DIR").rglob("*") if path.is_file()}
    assert staged == saved  # what `wandb sync` uploads as the artifact
    assert "RULER" in next((tmp_path / "wandb").rglob("report_*.html")).read_text(encoding="utf-8")
