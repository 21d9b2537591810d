import json

import torch

from benchmarks import embedding


def test_all_ways_are_timed_and_read_the_same(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["embedding", "--quick", "--json", str(tmp_path / "times.json")])
    embedding.main()
    lines = json.loads((tmp_path / "times.json").read_text())["embedding"]
    precisions = ["plain loop, full precision", "plain loop, TF32", "plain loop, bfloat16"]
    assert [line["rival"] for line in lines] == [*precisions, "plain loop"]
    assert all(line["rival_s"] > 0 and line["ruler_s"] > 0 for line in lines)
    assert all(line["apart"] < (1e-1 if "bfloat16" in line["work"] else 1e-5) for line in lines)
    assert "| ratio |" in capsys.readouterr().out


def test_batches_of_texts_are_as_wide_as_their_longest():
    texts = [torch.arange(1, n + 1) for n in (3, 5, 2)]
    (batch,) = embedding.batch_texts(texts)
    assert batch["input_ids"].shape == (3, 5)
    assert batch["attention_mask"].sum(1).tolist() == [3, 5, 2]
