"""What is measured of models together is what the metrics and the search say of each of them."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch

import ruler.experiment.tabular.measure as module
from ruler.core.errors import InputError
from ruler.core.types import Predictions
from ruler.experiment.cell import divide_by_norms
from ruler.experiment.tabular.measure import (
    Forward,
    Records,
    load_parts,
    make_records,
    measure_models,
    nearest_in_gallery,
)
from ruler.metrics import m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.neighbors import find_neighbors
from ruler.training.ensemble import MLPShape, StackedMLP

N_MODELS = 3


@cache
def records() -> Records:
    return make_records(load_parts("breast_cancer"), 0.1, 999)


@cache
def models() -> StackedMLP:
    return StackedMLP.from_seeds(range(N_MODELS), MLPShape(n_features=30))


def runs() -> list[Forward]:
    return [partial(models().forward, member=member) for member in range(N_MODELS)]


def test_models_asked_together_answer_as_alone() -> None:
    for together, run in zip(measure_models(runs(), records()), runs(), strict=True):
        alone = measure_models([run], records())[0]
        assert together.alone == alone.alone
        assert torch.equal(together.compared, alone.compared)


def test_scores_are_those_of_the_metrics() -> None:
    own, parts = records(), records().parts
    rows, logits = runs()[0](own.distinct)[0], models().logits(parts.train_features, 0).astype(np.float64)
    kept, gone = (Predictions(logits[i], parts.train_target[i]) for i in (own.partition.retain, own.partition.forget))
    test = Predictions(models().logits(parts.test_features, 0).astype(np.float64), parts.test_target)
    assert measure_models([runs()[0]], own)[0].alone == {
        "m4": m4(rows[own.forget], rows[own.gallery]),
        "mia": membership_inference(gone, test),
        "forget_accuracy": accuracy(gone),
        "retain_accuracy": accuracy(kept),
        "test_accuracy": accuracy(test),
    }


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_collapsed_model_is_ranked_by_the_search(value: float) -> None:
    def collapse(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((len(rows), 4), value), torch.zeros(len(rows), 2)

    same = torch.full((10, 4), value)
    assert measure_models([collapse], records())[0].alone["m4"] == m4(same, same) == 1.0


def test_identical_records_are_neighbours_of_each_other() -> None:
    wine = make_records(load_parts("breast_cancer"), 0.1, 999)
    copies = torch.cat([wine.gallery, wine.gallery[:100]])
    doubled = replace(wine, gallery=copies)
    rows = runs()[0](wine.distinct)[0]
    assert measure_models([runs()[0]], doubled)[0].alone["m4"] == m4(rows[wine.forget], rows[copies])


def test_representations_must_be_finite() -> None:
    with pytest.raises(InputError, match="representations must be finite; got NaN or inf in 2 rows"):
        divide_by_norms(torch.tensor([[1.0, 2.0], [torch.nan, 1.0], [torch.inf, 1.0]]))
    with pytest.raises(InputError, match="representations must be finite; got NaN or inf in 1 rows"):
        divide_by_norms(np.array([[1.0, 2.0], [np.nan, 1.0]]))


def test_answers_on_retain_records_must_be_finite() -> None:
    def spoil(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        representations, logits = runs()[0](rows)
        if len(rows) == len(records().train):
            logits[records().partition.retain[:2]] = torch.nan
        return representations, logits

    with pytest.raises(InputError, match="retain must have finite logits; got NaN or inf in 2 rows"):
        measure_models([spoil], records())[0]


@pytest.mark.gpu
def test_a_gpu_scores_what_a_cpu_scores_of_the_same_answers() -> None:
    def replay(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        representations, logits = runs()[0](rows.cpu())
        return representations.to(rows.device), logits.to(rows.device)

    own = records()
    there = make_records(own.parts, 0.1, 999, device="cuda")
    (on_cpu,), (on_gpu,) = measure_models([replay], own), measure_models([replay], there)
    assert on_gpu.alone == on_cpu.alone
    assert np.array_equal(on_gpu.compared.cpu().numpy(), on_cpu.compared.numpy())


def make_rows(n: int, *, seed: int, width: int = 128) -> torch.Tensor:
    """Representations as a ReLU leaves them: many zeros, some rows all zero, directions close to each other."""
    random = np.random.RandomState(seed)
    rows = np.maximum(random.randn(n, width) * 0.3 + random.randn(width), 0).astype(np.float32)
    rows[[3, 150 % n]] = 0.0
    return torch.from_numpy(rows)


def test_similarities_are_the_searchs_to_the_last_bit() -> None:
    models = [make_rows(300, seed=seed) for seed in (0, 1, 2)]
    units = torch.stack([divide_by_norms(rows) for rows in models])
    to_forget, forget_holds = nearest_in_gallery(units[:, :100], units[:, 100:])
    to_gallery, gallery_holds = nearest_in_gallery(units[:, 100:], units[:, 100:], is_self=True)
    assert forget_holds.all()
    assert gallery_holds.all()
    for rows, queries, own in zip(models, to_forget, to_gallery, strict=True):
        forget, gallery = rows[:100], rows[100:]
        assert np.array_equal(queries.numpy(), find_neighbors(forget, gallery).similarity[:, 0])
        assert np.array_equal(own.numpy(), find_neighbors(gallery, gallery, exclude_self=True).similarity[:, 0])


@pytest.mark.parametrize("n_products", [1, 5000, 1 << 27])
def test_blocks_change_nothing(n_products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    units = torch.stack([divide_by_norms(make_rows(80, seed=seed)) for seed in (0, 1)])
    expected, _ = nearest_in_gallery(units, units, is_self=True)
    monkeypatch.setitem(module._PRODUCTS, "cpu", n_products)
    found, _ = nearest_in_gallery(units, units, is_self=True)
    assert torch.equal(found, expected)


def test_products_that_tie_are_compared_exactly() -> None:
    random = np.random.RandomState(0)
    query = random.rand(1, 128)
    near = np.concatenate([query * (1 + 1e-15 * random.randn(1, 128)), query, random.rand(5, 128)])
    units = divide_by_norms(near)
    queries, base = torch.from_numpy(divide_by_norms(query))[None], torch.from_numpy(units)[None]
    found, holds = nearest_in_gallery(queries, base)
    assert found.item() == 1.0
    assert holds.item()


def test_more_ties_than_are_compared_are_told_of_for_their_model_alone() -> None:
    rows = divide_by_norms(np.random.RandomState(0).rand(2, 6, 8).reshape(12, 8)).reshape(2, 6, 8)
    rows[1, 3:] = rows[1, 2]
    _, holds = nearest_in_gallery(torch.from_numpy(rows), torch.from_numpy(rows), is_self=True)
    assert holds.tolist() == [True, False]


def test_a_single_row_has_no_neighbour() -> None:
    row = torch.ones(1, 1, 1, dtype=torch.float64)
    assert not nearest_in_gallery(row, row, is_self=True)[1].item()


def test_identical_records_are_embedded_once() -> None:
    records = make_records(load_parts("breast_cancer"), 0.05, 999)
    features = records.parts.train_features
    assert len(np.unique(records.distinct, axis=0)) == len(records.distinct)
    assert np.array_equal(records.distinct[records.forget].numpy(), features[records.partition.forget])
    assert np.array_equal(records.distinct[records.gallery].numpy(), features[records.partition.retain])
