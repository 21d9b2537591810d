"""docs/inputs.md says what `audit` and `audit_models` take and what they answer to mistakes; here each line is tried.

``RULER_WRITE_DOCS=1 pytest tests/auditing/test_inputs.py`` writes the page anew.
"""

import os
import re
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader, TensorDataset

import ruler
from ruler.core.errors import RulerError
from ruler.embeddings.sides import as_rows

PAGE = Path(__file__).parents[2] / "docs" / "inputs.md"

EMBEDDINGS = {
    "a tuple of arrays": "audit((forget, retain, held_out))",
    "without held-out records": "audit((forget, retain))",
    "None for held-out records": "audit((forget, retain, None))",
    "None for retain records": "audit((forget, None))",
    "a dict by side": "audit({'forget': forget, 'retain': retain, 'held_out': held_out})",
    "nested lists": "audit((forget.tolist(), retain.tolist()))",
    "torch tensors": "audit((torch.tensor(forget), torch.tensor(retain)))",
    "torch bfloat16": "audit((torch.tensor(forget).bfloat16(), torch.tensor(retain).bfloat16()))",
    "`Embeddings` with labels": "audit((Embeddings(forget, labels=classes), Embeddings(retain)))",
    "a pandas DataFrame, a column per dimension": "audit((table, pd.DataFrame(retain, columns=list('abcd'))))",
    "a pandas DataFrame with a column `embedding`": "audit((pd.DataFrame({'embedding': list(forget)}), retain))",
    "a polars DataFrame, a column per dimension": "audit((pl.from_pandas(table), pl.DataFrame(retain, list('abcd'))))",
    "a polars DataFrame with a column `embedding`": (
        "audit((pl.DataFrame({'embedding': forget, 'id': names}), retain))"
    ),
    "a polars LazyFrame": "audit((pl.from_pandas(table).lazy(), retain))",
    "a Hugging Face dataset with a column `embedding`": (
        "audit((datasets.Dataset.from_dict({'embedding': forget, 'label': classes}), retain))"
    ),
    "a pyarrow Table": "audit((pa.table({'embedding': forget.tolist(), 'id': names}), retain))",
    "a dict of columns": "audit(({'embedding': forget, 'id': names}, {'embedding': retain}))",
    "paths of files": "audit(('model/forget.npy', 'model/retain.npy'))",
    "the path of a folder": "audit('model')",
    "several layers": "audit(({'h1': forget, 'h2': 2 * forget}, {'h1': retain, 'h2': retain}))",
    "several oracles": "audit((forget, retain), oracle=[(forget, retain), (forget, retain)])",
    "names and groups": "audit((forget, retain), ids=names, groups={'forget': names})",
    "one forget record": "audit((forget[:1], retain, held_out))",
    "settings as a dict": "audit((forget, retain), settings={'alpha': 0.01})",
    "a model": "audit(model)",
    "weights of a model": "audit(model.state_dict())",
    "weights of a model as rows": "audit((model.state_dict(), retain))",
    "a sparse matrix": "audit((scipy.sparse.csr_matrix(forget), retain))",
    "a column of lists": "audit((pd.Series(list(forget)), retain))",
    "a misspelt column": "audit((pd.DataFrame({'embeding': list(forget)}), retain))",
    "a column of text": "audit((table.rename(columns={'id': 'idx'}), retain))",
    "lists of several lengths": "audit(({'embedding': [[1.0, 2.0], [3.0]]}, retain))",
    "images that are not flat": "audit((forget.reshape(-1, 2, 2), retain))",
    "one array": "audit(forget)",
    "one side": "audit((forget,))",
    "sides under other names": "audit({'forget': forget, 'train': retain})",
    "values that are missing": "audit((np.where(forget > 2, np.nan, forget), retain))",
    "an empty side": "audit((forget[:0], retain))",
    "widths that differ": "audit((forget[:, :3], retain))",
    "other records in the oracle": "audit((forget, retain), oracle=(forget[:20], retain))",
    "held-out records of one model only": "audit((forget, retain, held_out), oracle=(forget, retain))",
    "too few names": "audit((forget, retain), ids=names[:5])",
    "a heading among the names": "audit((forget, retain), groups=['person', *names])",
    "groups that are not known of all": "audit((forget, retain), groups=[None, *names[1:]])",
    "groups that pandas does not know": "audit((forget, retain), groups=pd.array([*names[:29], None]))",
    "a file that is not there": "audit(('model/forgot.npy', 'model/retain.npy'))",
    "a folder without retain records": "audit('half')",
    "a file with the weights of a model": "audit(('model/weights.pt', 'model/retain.npy'))",
    "a file with a sparse matrix": "audit(('model/sparse.npz', 'model/retain.npy'))",
    "a parquet file with a column of vectors by another name": "audit(('model/vec.parquet', 'model/retain.npy'))",
}
MODELS = {
    "a pair (X, y)": "audit_models(model, forget=(x, y), retain=(x2, y2))",
    "inputs without labels": "audit_models(model, forget=x, retain=x2)",
    "a torch Dataset": "audit_models(model, forget=TensorDataset(x, y), retain=TensorDataset(x2, y2))",
    "a DataLoader": "audit_models(model, forget=DataLoader(TensorDataset(x, y), 16), retain=(x2, y2))",
    "a dict of columns": "audit_models(two_inputs, forget={'a': x, 'b': x, 'labels': y}, retain={'a': x2, 'b': x2})",
    "a model of two inputs": "audit_models(two_inputs, forget=(x, x, y), retain=(x2, x2, y2))",
    "a model that answers with a dict": "audit_models(dict_model, forget=(x, y), retain=(x2, y2))",
    "one logit, classes 0 and 1": "audit_models(one_logit, forget=(x, y), retain=(x2, y2))",
    "one number, real targets": "audit_models(one_logit, forget=(x, x[:, 0]), retain=(x2, x2[:, 0]))",
    "a shuffled DataLoader": "audit_models(model, forget=DataLoader(TensorDataset(x), shuffle=True), retain=x2)",
    "a batch of nested dicts": "audit_models(two_inputs, forget=[{'a': {'ids': x[0]}, 'b': x[0]}], retain=x2)",
    "nested dicts of columns": "audit_models(two_inputs, forget={'a': {'ids': x}, 'b': x}, retain=x2)",
    "a sparse matrix": "audit_models(model, forget=scipy.sparse.csr_matrix(x), retain=x2)",
    "a pandas DataFrame": "audit_models(model, forget=pd.DataFrame(forget), retain=x2)",
    "keys that the model does not take": "audit_models(two_inputs, forget={'a': x, 'c': x}, retain=x2)",
    "texts": "audit_models(model, forget=['a', 'b'], retain=x2)",
    "inputs of the wrong width": "audit_models(model, forget=x[:, :3], retain=x2)",
    "inputs of the wrong type": "audit_models(model, forget=x.long(), retain=x2)",
    "token ids beyond the vocabulary": "audit_models(tokens, forget=10 + x.long().abs(), retain=x2.long().abs())",
    "None for retain records": "audit_models(model, forget=x, retain=None)",
    "no such layer": "audit_models(model, forget=x, retain=x2, layer='head')",
    "a layer by its number": "audit_models(model, forget=x, retain=x2, layer=1)",
    "settings as a dict": "audit_models(model, forget=x, retain=x2, settings={'limit': 0.05})",
}


class TwoInputs(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, a, b):
        return self.head(self.body(torch.cat([a, b], dim=1)).relu())


class DictModel(TwoInputs):
    def forward(self, x):
        return {"logits": super().forward(x, x)}


def _build(n_outputs):
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, n_outputs))


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    rng = np.random.default_rng(0)
    forget, retain, held_out = (rng.normal(size=(n, 4)) for n in (30, 120, 30))
    names = [f"r{number}" for number in range(30)]
    torch.manual_seed(0)
    x, x2 = (torch.tensor(part, dtype=torch.float32) for part in (forget, retain))
    folder = tmp_path_factory.mktemp("inputs")
    for model, side, rows in (
        ("model", "forget", forget),
        ("model", "retain", retain),
        ("half", "forget", forget),
    ):
        (folder / model).mkdir(exist_ok=True)
        np.save(folder / model / f"{side}.npy", rows)
    torch.save(_build(2)[:1].state_dict(), folder / "model" / "weights.pt")
    scipy.sparse.save_npz(folder / "model" / "sparse.npz", scipy.sparse.csr_matrix(forget))
    pd.DataFrame({"vec": list(forget)}).to_parquet(folder / "model" / "vec.parquet")
    table = pd.DataFrame(forget, columns=list("abcd")).assign(id=names)
    libraries = {"np": np, "pd": pd, "pa": pa, "pl": pl, "torch": torch, "datasets": datasets, "scipy": scipy}
    loaders = {"DataLoader": DataLoader, "TensorDataset": TensorDataset, "Embeddings": ruler.Embeddings}
    rows = {"forget": forget, "retain": retain, "held_out": held_out, "names": names, "table": table}
    records = {"x": x, "x2": x2, "y": (x[:, 0] > 0).long(), "y2": (x2[:, 0] > 0).long(), "classes": ["a", "b"] * 15}
    models = {"model": _build(2), "one_logit": _build(1), "two_inputs": TwoInputs(), "dict_model": DictModel()}
    models["tokens"] = torch.nn.Sequential(torch.nn.Embedding(10, 2), torch.nn.Flatten(), torch.nn.Linear(8, 2))
    doors = {"audit": ruler.audit, "audit_models": ruler.audit_models}
    return folder, {**libraries, **loaders, **rows, **records, **models, **doors}


def answer(code, folder, names):
    """What a call ends with, in the page's words."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        report = eval(code, dict(names))
    except RulerError as error:
        return str(error)
    finally:
        os.chdir(before)
    assert report.verdict in ("erased", "residual", "displaced", "damaged", "inconclusive", "invalid")
    beside = ", with outputs" if report.answers else ""
    return f"works: {', '.join(report.metrics)}{beside}"


def write_page(folder, names):
    tables = []
    for title, door, cases in (
        ("Embeddings", "ruler.audit", EMBEDDINGS),
        ("Models and their records", "ruler.audit_models", MODELS),
    ):
        rows = [
            f"| {what} | `{code}` | {answer(code, folder, names).replace('|', chr(92) + '|')} |"
            for what, code in cases.items()
        ]
        tables.append("\n".join([f"## {title}: `{door}`\n", "| given | call | answer |", "|---|---|---|", *rows, ""]))
    return "\n".join([INTRODUCTION, *tables])


INTRODUCTION = """# What goes in

What `ruler.audit` and `ruler.audit_models` take, and the line that answers each mistake. Every call on this page is
made by `tests/auditing/test_inputs.py`, which also writes it. `forget`, `retain` and `held_out` are arrays (n, p), `x`
and `y` tensors. After "works" come the contrasts that the report holds. [files.md](files.md) describes files and
folders.
"""


def test_every_input_works_or_gets_its_line_as_the_page_says(given):
    page = write_page(*given)
    if os.environ.get("RULER_WRITE_DOCS"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page, "docs/inputs.md is stale: set RULER_WRITE_DOCS=1 and run this test"
    assert len(EMBEDDINGS) + len(MODELS) >= 30


@pytest.mark.parametrize("what", list(EMBEDDINGS)[list(EMBEDDINGS).index("settings as a dict") :])
def test_a_mistake_is_answered_by_one_sentence_that_names_the_rule(what, given):
    line = answer(EMBEDDINGS[what], *given)
    assert re.match(r".+ must .+; got .+", line), line


@pytest.mark.parametrize("kind", [pl.List(pl.Float64), pl.Array(pl.Float64, 4)])
def test_a_table_of_polars_is_read_as_the_arrays_in_it(given, kind):
    names = given[1]
    beside = {"id": names["names"], "label": names["classes"], "group": pl.Series(names["names"], dtype=pl.Categorical)}
    losses = np.linspace(0, 1, 30)
    table = pl.DataFrame(
        {"embedding": pl.Series(names["forget"].tolist(), dtype=kind), "loss": losses} | beside, strict=False
    )
    rows = as_rows(table, "forget")
    assert np.array_equal(rows.values, names["forget"])
    assert np.array_equal(rows.losses, losses)
    assert (rows.ids.tolist(), rows.labels.tolist()) == (names["names"], names["classes"])
    assert rows.groups.tolist() == names["names"]


def test_a_hole_in_a_table_of_polars_is_found(given):
    rows = given[1]["forget"].tolist()
    rows[3][1] = None
    with pytest.raises(ruler.RulerError, match="unlearned forget must be finite"):
        ruler.audit((pl.DataFrame({"embedding": rows}), given[1]["retain"]))


def test_a_table_keeps_what_stands_beside_its_rows(given):
    _, names = given
    report = ruler.audit((names["table"], names["retain"]))
    assert sorted(report.records["id"]) == sorted(names["names"])
    plain = ruler.audit((names["forget"], names["retain"]))
    assert report.metrics["m4"].value == plain.metrics["m4"].value
