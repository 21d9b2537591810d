import pandas as pd

from ruler.paper import __main__ as command


def test_a_study_comes_from_the_last_store_that_holds_it(monkeypatch):
    stores = {
        "a": pd.DataFrame({"study": ["primary", "minibatch"], "m2": [1.0, 2.0]}),
        "b": pd.DataFrame({"study": ["minibatch"], "m2": [3.0]}),
    }
    monkeypatch.setattr(command, "load_results", stores.__getitem__)
    joined = command.join_stores(["a", "b"]).set_index("study")["m2"]
    assert joined.to_dict() == {"primary": 1.0, "minibatch": 3.0}
