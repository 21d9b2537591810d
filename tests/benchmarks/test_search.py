import json
import sys

from benchmarks import search
from benchmarks.search import Case


def test_every_kind_is_timed_in_turns_and_checked(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "SIZES", ())
    monkeypatch.setattr(search, "KINDS", (Case("tight classes", 600, 8),))
    monkeypatch.setattr(sys, "argv", ["kinds", "--json", str(tmp_path / "kinds.json")])
    search.main()
    (row,) = json.loads((tmp_path / "kinds.json").read_text())["kinds"]
    assert json.loads(capsys.readouterr().out) == row
    assert row["is_exact"]
    assert min(row[name] for name in ("ruler_s", "plain_s", "faiss_s", "limit_s")) > 0
