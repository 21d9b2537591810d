"""Many records into a folder of shards: resumed, audited as it is, and the same whoever reads."""

import random

import numpy as np
import pytest
import torch
from tests.embeddings.bundle.language import COUNTS, build, make_rows, make_tokenizer, save

import ruler
from ruler.core.errors import InputError
from ruler.embeddings import embed
from ruler.embeddings.prompts import encode_prompts
from ruler.embeddings.shards import embed_shards, read_here


def encode(side):
    rows = make_rows(side)
    texts = [row["question"] for row in rows], [row["answer"] for row in rows]
    return {**encode_prompts(make_tokenizer(), *texts, template=True), "id": np.array([row["id"] for row in rows])}


class CountingRun:
    """Reads in any order, and stops after some shards, as a machine that is switched off."""

    def __init__(self, n_most=None):
        self.n_most, self.numbers = n_most, []

    def __call__(self, reading, model, shards):
        shards = list(shards)
        random.Random(0).shuffle(shards)
        for number, rows in read_here(reading, model, shards[: self.n_most]):
            self.numbers.append(number)
            yield number, rows


def read_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}


def test_shards_hold_what_one_pass_gives(tmp_path):
    model, data = build("llama"), encode("retain")
    found = embed_shards(model, data, tmp_path / "retain", shard_size=25)
    expected = embed(model, data)
    np.testing.assert_allclose(np.asarray(found.values[:]), expected.values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.losses, expected.losses, rtol=1e-6)
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.layer == "model"
    assert len(read_bytes(tmp_path / "retain")) == 3


def test_a_reading_that_was_stopped_goes_on_to_the_same_bits(tmp_path):
    model, data = build("gpt2"), encode("retain")
    embed_shards(model, data, tmp_path / "whole", shard_size=10)
    first, second = CountingRun(n_most=2), CountingRun()
    embed_shards(model, data, tmp_path / "parts", shard_size=10, run=first)
    embed_shards(model, data, tmp_path / "parts", shard_size=10, run=second)
    assert len(first.numbers) == 2
    assert sorted(first.numbers + second.numbers) == list(range(6))
    assert read_bytes(tmp_path / "parts") == read_bytes(tmp_path / "whole")


def test_a_folder_of_shards_is_audited_as_it_is(tmp_path):
    sides = {side: encode(side) for side in COUNTS}
    for seed, name in enumerate(("unlearned", "oracle")):
        save(build("llama", seed), tmp_path / f"{name}-model")
        for side, data in sides.items():
            embed_shards(tmp_path / f"{name}-model", data, tmp_path / name / side, shard_size=20)
    report = ruler.audit(tmp_path / "unlearned", oracle=tmp_path / "oracle")
    expected = ruler.audit_models(build("llama", 0), oracle=build("llama", 1), **sides)
    assert report.verdict == expected.verdict
    for name in ("m4", "loss"):
        assert report.metrics[name].value == pytest.approx(expected.metrics[name].value, abs=1e-5)


@pytest.mark.parametrize("change", ["model", "records", "batches"])
def test_shards_of_something_else_are_not_taken_for_these(change, tmp_path):
    rows = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    models = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)]
    embed_shards(models[0], rows, tmp_path, layer="", shard_size=4)
    given = {
        "model": (models[1], rows, 256),
        "records": (models[0], rows + 1, 256),
        "batches": (models[0], rows, 2),
    }[change]
    with pytest.raises(InputError, match="got shards of another model, other records or another way to read them"):
        embed_shards(*given[:2], tmp_path, layer="", shard_size=4, batch_size=given[2])


def test_what_cannot_be_cut_is_refused(tmp_path):
    model = torch.nn.Linear(3, 2)
    with pytest.raises(InputError, match="Encode the records first"):
        embed_shards(model, iter([]), tmp_path / "a")
    with pytest.raises(InputError, match=r"as many in every part; got \[2, 3\]"):
        embed_shards(model, (torch.eye(3), torch.ones(2)), tmp_path / "a")
    with pytest.raises(InputError, match="layer must be a single one for shards; got 'all'"):
        embed_shards(model, torch.eye(3), tmp_path / "a", layer="all")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "other.txt").write_text("mine")
    with pytest.raises(InputError, match="got other files"):
        embed_shards(model, torch.eye(3), tmp_path / "b", layer="")
