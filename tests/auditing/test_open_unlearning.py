"""The audit behind open-unlearning's signature, registered and called as that tool does it."""

import json

import pytest
import torch
from tests.embeddings.causal_models import make_llama
from torch.utils.data import Dataset

from ruler.auditing.open_unlearning import audit_unlearned
from ruler.core.errors import InputError

REGISTRY = {}


class UnlearningMetric:
    """A metric: fills in data and collators from its configuration, then calls the function."""

    def __init__(self, name, function):
        self.name, self.function = name, function

    def evaluate(self, model, metric_name, cache, **kwargs):
        if metric_name not in cache:
            data = {part["access_key"]: part["dataset"] for part in kwargs.pop("datasets").values()}
            cache[metric_name] = self.function(model, data=data, collators=kwargs.pop("collators"), **kwargs)
        return cache[metric_name]


def unlearning_metric(name):
    def decorate(function):
        REGISTRY[name] = UnlearningMetric(name, function)
        return REGISTRY[name]

    return decorate


class Answers(Dataset):
    """Questions and answers; items have an index of their own, as a filtered dataset has."""

    def __init__(self, n, seed, first_index=0):
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.randint(4, 9, (n,), generator=draw)
        self.tokens = [torch.randint(1, 40, (int(length),), generator=draw) for length in lengths]
        self.first_index = first_index

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, row):
        tokens = self.tokens[row]
        labels = torch.cat([torch.full((2,), -100), tokens[2:]])
        return {"input_ids": tokens, "labels": labels, "index": self.first_index + row}


def refuse(items):
    raise AssertionError("records are not padded by the tool's collator, which may pad on the left")


@pytest.fixture(scope="module")
def datasets():
    parts = {"forget": Answers(40, 1, first_index=100), "retain": Answers(60, 2), "held_out": Answers(40, 3)}
    return {f"TOFU_{side}": {"access_key": side, "dataset": part} for side, part in parts.items()}


def evaluate(datasets, model=None, **kwargs):
    metric = unlearning_metric(name="ruler_audit")(audit_unlearned)
    assert metric is REGISTRY["ruler_audit"]
    settings = {"n_permutations": 99}
    return metric.evaluate(
        make_llama() if model is None else model,
        metric_name="ruler_audit",
        cache={},
        datasets=datasets,
        collators=refuse,
        tokenizer=None,
        batch_size=16,
        settings=settings,
        **kwargs,
    )


def test_answers_in_the_form_of_the_tool(datasets):
    model = make_llama().train()
    found = evaluate(datasets, model, oracle=make_llama(1), original=make_llama(2), group_size=4)
    assert found["agg_value"] == found["outputs"]["remaining"]["value"]
    assert found["layers"]["remaining"]["scale"] == "original"
    assert list(found["value_by_index"]) == list(range(100, 140))
    first = found["value_by_index"][100]
    assert {"remaining", "low", "high", "oracle_similarity", "loss", "p_value", "finding"} <= first.keys()
    assert found["verdict"] in {"erased", "residual", "displaced", "damaged", "inconclusive", "invalid"}
    assert found["metrics"]["loss"]["remaining"]["original"]["contrast"] == "loss"
    assert 0 <= found["metrics"]["m2"]["effect"] <= 1
    assert model.training
    json.loads(json.dumps(found, allow_nan=False))


def test_losses_are_those_of_each_record(datasets):
    model = make_llama()
    found = evaluate(datasets, model)
    assert found["agg_value"] == found["metrics"]["loss"]["remaining"]["members"]["value"]
    for item in list(datasets["TOFU_forget"]["dataset"])[:3]:
        loss = model(input_ids=item["input_ids"][None], labels=item["labels"][None]).loss
        assert found["value_by_index"][item["index"]]["loss"] == pytest.approx(float(loss.detach()), abs=1e-4)


def test_oracles_may_be_folders(datasets, tmp_path):
    make_llama(1).save_pretrained(tmp_path / "oracle")
    by_name = evaluate(datasets, oracle=str(tmp_path / "oracle"))
    assert by_name["agg_value"] == evaluate(datasets, oracle=[make_llama(1)])["agg_value"]


def test_a_contrast_can_be_asked_for(datasets):
    models = {"oracle": make_llama(1), "original": make_llama(2)}
    found = evaluate(datasets, metric="tangent", **models)
    assert found["agg_value"] == found["metrics"]["tangent"]["remaining"]["original"]["value"]
    assert evaluate(datasets, metric="m2", **models)["agg_value"] is None  # it accuses, and measures no amount


def test_references_are_passed_on(datasets, tmp_path):
    make_llama(1).save_pretrained(tmp_path / "base")
    by_name = evaluate(datasets, reference=str(tmp_path / "base"))
    assert by_name["agg_value"] == evaluate(datasets, reference=[make_llama(1)])["agg_value"]
    assert by_name["agg_value"] != evaluate(datasets)["agg_value"]


def test_without_held_out_records_the_number_is_unknown(datasets):
    found = evaluate({name: part for name, part in datasets.items() if name != "TOFU_held_out"})
    assert found["agg_value"] is None
    assert found["metrics"]["m4"]["reason"]


def test_what_lacks_is_said(datasets):
    with pytest.raises(InputError, match="access keys forget, retain and held_out; got forget"):
        audit_unlearned(make_llama(), data={"forget": datasets["TOFU_forget"]["dataset"]})
    with pytest.raises(InputError, match="metric must be one of"):
        evaluate(datasets, metric="m9")
    with pytest.raises(InputError, match="must have input_ids and labels"):
        audit_unlearned(make_llama(), data={"forget": [{"text": "a"}], "retain": []})
