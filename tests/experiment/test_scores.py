"""What is measured of models together is what the metrics say of each of them."""

from functools import cache, partial

import numpy as np
import pytest
import torch

from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.experiment.records import Records, load_parts, make_records
from ruler.experiment.scores import Run, ask, ask_all, compare, compare_shift, divide_by_norms
from ruler.metrics import cosine_similarity, m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.training.ensemble import MLPShape, StackedMLP

N_MODELS = 3


@cache
def records() -> Records:
    return make_records(load_parts("breast_cancer"), 0.1, 999)


@cache
def models() -> StackedMLP:
    return StackedMLP.from_seeds(range(N_MODELS), MLPShape(n_features=30))


def runs() -> list[Run]:
    return [partial(models().forward, member=member) for member in range(N_MODELS)]


def test_models_asked_together_answer_as_alone() -> None:
    for together, run in zip(ask_all(runs(), records()), runs(), strict=True):
        alone = ask(run, records())
        assert together.alone == alone.alone
        assert torch.equal(together.compared, alone.compared)


def test_scores_are_those_of_the_metrics() -> None:
    own, parts = records(), records().parts
    rows, logits = runs()[0](own.inputs.distinct)[0], models().logits(parts.train_features, 0).astype(np.float64)
    kept, gone = (Predictions(logits[i], parts.train_target[i]) for i in (own.partition.retain, own.partition.forget))
    test = Predictions(models().logits(parts.test_features, 0).astype(np.float64), parts.test_target)
    assert ask(runs()[0], own).alone == {
        "m4": m4(rows[own.forget], rows[own.gallery]),
        "mia": membership_inference(gone, test),
        "forget_accuracy": accuracy(gone),
        "retain_accuracy": accuracy(kept),
        "test_accuracy": accuracy(test),
    }


def test_comparisons_are_those_of_the_metrics() -> None:
    original, oracle, unlearned = ask_all(runs(), records())
    rows = [run(records().inputs.distinct)[0].numpy() for run in runs()]
    forget = [own[records().forget] for own in rows]
    baseline = [own[records().baseline] for own in rows]
    similarity, before = cosine_similarity(forget[2], forget[1]), cosine_similarity(forget[0], forget[1])
    expected = cosine_similarity(baseline[2], baseline[1])
    assert compare(unlearned, oracle) == {
        "m1": similarity.mean(),
        "m2": (similarity - np.median(expected)).mean(),
        "m2_mean_baseline": (similarity - expected.mean()).mean(),
    }
    assert compare_shift(unlearned, original, oracle) == {"m3": (similarity - before).mean()}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_collapsed_model_is_ranked_by_the_search(value: float) -> None:
    def collapse(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((len(rows), 4), value), torch.zeros(len(rows), 2)

    same = torch.full((10, 4), value)
    assert ask(collapse, records()).alone["m4"] == m4(same, same) == 1.0


def test_identical_records_are_neighbours_of_each_other() -> None:
    wine = make_records(load_parts("breast_cancer"), 0.1, 999)
    twins = np.concatenate([wine.gallery, wine.gallery[:100]])
    doubled = Records(wine.parts, wine.partition, wine.distinct, wine.forget, wine.baseline, twins)
    rows = runs()[0](wine.inputs.distinct)[0]
    assert ask(runs()[0], doubled).alone["m4"] == m4(rows[wine.forget], rows[twins])


def test_representations_must_be_finite() -> None:
    with pytest.raises(InputError, match="representations must be finite; got NaN or inf in 2 rows"):
        divide_by_norms(torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 1.0]]))
    with pytest.raises(InputError, match="representations must be finite; got NaN or inf in 1 rows"):
        divide_by_norms(np.array([[1.0, 2.0], [np.nan, 1.0]]))


def test_answers_on_retain_records_must_be_finite() -> None:
    def spoil(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        representations, logits = runs()[0](rows)
        if len(rows) == len(records().inputs.train):
            logits[records().partition.retain[:2]] = torch.nan
        return representations, logits

    with pytest.raises(InputError, match="retain must have finite logits; got NaN or inf in 2 rows"):
        ask(spoil, records())


@pytest.mark.gpu
def test_a_gpu_scores_what_a_cpu_scores_of_the_same_answers() -> None:
    def replay(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        representations, logits = runs()[0](rows.cpu())
        return representations.to(rows.device), logits.to(rows.device)

    own = records()
    there = make_records(own.parts, 0.1, 999, device="cuda")
    on_cpu, on_gpu = ask(replay, own), ask(replay, there)
    assert on_gpu.alone == on_cpu.alone
    assert np.array_equal(on_gpu.compared.cpu().numpy(), on_cpu.compared.numpy())
