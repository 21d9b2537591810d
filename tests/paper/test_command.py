import sys
from pathlib import Path

import pandas as pd

from ruler.paper import __main__ as command


def test_a_study_comes_from_the_last_store_that_holds_it(monkeypatch):
    stores = {
        "a": pd.DataFrame({"study": ["primary", "minibatch"], "m2": [1.0, 2.0]}),
        "b": pd.DataFrame({"study": ["minibatch"], "m2": [3.0]}),
    }
    monkeypatch.setattr(command, "load_results", lambda store: stores[store.name])
    joined = command.join_stores([Path("a"), Path("b")]).set_index("study")["m2"]
    assert joined.to_dict() == {"primary": 1.0, "minibatch": 3.0}


def test_rows_that_were_kept_stand_for_their_stores(monkeypatch, tmp_path):
    rows = pd.DataFrame({"study": ["primary"], "m2": [1.0]})
    monkeypatch.setattr(command, "load_results", lambda store: rows)
    monkeypatch.setattr(command, "write_all", lambda rows, out: None)
    kept = tmp_path / "rows.parquet"
    monkeypatch.setattr(sys, "argv", ["paper", "results.sqlite", "--rows", str(kept)])
    command.main()
    assert command.join_stores([kept]).equals(rows)
