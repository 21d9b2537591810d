import json
import sys

from benchmarks import audits
from benchmarks.audits import STAGES, Case


def test_an_audit_is_timed_by_stage_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(audits, "CASES", (Case(900, 128, 100, 300),))
    page = tmp_path / "audits.json"
    page.write_text(json.dumps({"notes": ["kept"]}))
    monkeypatch.setattr(
        sys, "argv", ["audits", "--json", str(page), "--cases", "0", "--figure", str(tmp_path / "a.png")]
    )
    audits.main()
    numbers = json.loads(page.read_text())
    (row,) = numbers["audits"]
    assert set(row["stages_s"]) == set(STAGES)
    assert all(value > 0 for value in row["stages_s"].values())
    assert row["peak_mb"] > 50
    assert numbers["notes"] == ["kept"]
    assert (tmp_path / "a.png").stat().st_size > 5000
