"""Stacked training against autograd and the one-by-one loop, and its independence of company."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from ruler.core.errors import DivergedError, InputError
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.classifier import train_classifier
from ruler.training.ensemble import EnsembleMember, MLPShape, StackedMLP, descend, train_ensemble
from ruler.training.ensemble.gradient import Pass
from ruler.training.settings import TrainingSettings

CPU = torch.device("cpu")
SHORT = TrainingSettings(epochs=6, learning_rate=1e-2)


def one_hot(labels, n_classes=2):
    return functional.one_hot(torch.as_tensor(labels), n_classes).T.float()


def test_without_dropout_members_equal_the_one_by_one_loop(table):
    features, labels = table
    forget = np.array([2, 3, 50, 149])
    kept = np.setdiff1d(np.arange(150), forget)
    models = train_ensemble(
        features, labels, [EnsembleMember(0), EnsembleMember(0, forget), EnsembleMember(1)], dropout=0.0
    )
    for member, (seed, rows) in enumerate([(0, slice(None)), (0, kept), (1, slice(None))]):
        alone = train_classifier(lambda: TabularMLP(5, dropout=0.0), (features[rows], labels[rows]), seed=seed)
        for name, value in alone.state_dict().items():
            torch.testing.assert_close(models.state_dict(member)[name], value, atol=1e-5, rtol=0)


class TestIndependence:
    def test_company_and_order_change_no_bit(self, table):
        features, labels = table
        members = [EnsembleMember(seed, forget) for seed in range(3) for forget in (None, np.arange(9))]
        together = train_ensemble(features, labels, members, SHORT)
        backwards = train_ensemble(features, labels, members[::-1], SHORT)
        for i, member in enumerate(members):
            alone = train_ensemble(features, labels, [member], SHORT)
            assert torch.equal(together.flat[i], alone.flat[0])
            assert torch.equal(together.flat[i], backwards.flat[len(members) - 1 - i])

    def test_batched_products_and_chunks_move_only_rounding(self, table):
        features, labels = table
        shape = MLPShape(5)
        sweep = Pass(torch.tensor(features), one_hot(labels))
        expected = train_ensemble(features, labels, [EnsembleMember(seed) for seed in range(3)], SHORT).flat
        for chunk_units in (1 << 10, 1 << 14, 1 << 20):
            values = StackedMLP.from_seeds(range(3), shape).flat
            descend(values, shape, [sweep], range(3), SHORT, chunk_units=chunk_units)
            torch.testing.assert_close(values, expected, atol=2e-4, rtol=0)

    def test_same_seed_and_rows_give_the_same_member_twice(self, table):
        models = train_ensemble(*table, [EnsembleMember(4), EnsembleMember(4, np.array([], dtype=np.int64))], SHORT)
        assert torch.equal(models.flat[0], models.flat[1])

    def test_threads_and_global_streams_are_left_as_they_were(self, table):
        torch.manual_seed(1)
        expected = torch.rand(1)
        n_threads = torch.get_num_threads()
        torch.manual_seed(1)
        train_ensemble(*table, [EnsembleMember(0)], SHORT)
        assert torch.equal(torch.rand(1), expected)
        assert torch.get_num_threads() == n_threads


def test_training_learns_and_members_behave_like_tabular_mlp(table):
    features, labels = table
    models = train_ensemble(features, labels, [EnsembleMember(0), EnsembleMember(1)])
    model = TabularMLP(5).eval()
    model.load_state_dict(models.state_dict(1))
    with torch.no_grad():
        expected = model(torch.tensor(features)).numpy()
        representation = model.penultimate(torch.tensor(features)).numpy()
    np.testing.assert_allclose(models.logits(features, 1), expected, atol=1e-6)
    np.testing.assert_allclose(models.embed(features, 1), representation, atol=1e-6)
    assert (models.logits(features, 1).argmax(axis=1) == labels).mean() > 0.8


def test_more_than_two_classes(table):
    features, _ = table
    labels = np.digitize(features[:, 0], [-0.5, 0.5])
    models = train_ensemble(features, labels, [EnsembleMember(0)], n_classes=3)
    assert (models.logits(features, 0).argmax(axis=1) == labels).mean() > 0.7


class TestErrors:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"labels": np.zeros(3)}, r"labels must be one class per row, shape \(150,\); got shape \(3,\)"),
            ({"labels": np.full(150, 2)}, "labels must be whole numbers from 0 to 1; got others"),
            ({"dropout": 1.0}, "dropout must be below 1; got 1.0"),
            ({"hidden": 0}, "hidden must be a whole number of at least 1; got 0"),
            ({"members": [EnsembleMember(0, np.array([150]))]}, "forget must name rows from 0 to 149"),
            ({"members": [EnsembleMember(0, np.arange(150))]}, "and leave some; got 150 rows"),
            ({"members": []}, "members must hold at least one member; got none"),
            ({"settings": TrainingSettings(batch_size=8)}, "batch_size must be None for an ensemble; got 8"),
            ({"settings": TrainingSettings(optimizer="sgd")}, "optimizer must be 'adam' for an ensemble"),
            ({"settings": TrainingSettings(weight_decay=0.1)}, "weight_decay must be 0.0 for an ensemble"),
            (
                {"settings": TrainingSettings(schedule="cosine")},
                "schedule must be 'constant' for an ensemble; got 'cosine'",
            ),
        ],
    )
    def test_bad_arguments_are_named(self, table, changes, message):
        arguments = {"features": table[0], "labels": table[1], "members": [EnsembleMember(0)]}
        with pytest.raises(InputError, match=message):
            train_ensemble(**(arguments | changes))

    def test_features_that_are_not_finite(self, table):
        features = table[0].copy()
        features[[1, 7], 2] = np.nan
        with pytest.raises(InputError, match="features must be finite float32 numbers; got NaN or inf in 2 rows"):
            train_ensemble(features, table[1], [EnsembleMember(0)])

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_seeds_out_of_range(self, seed):
        with pytest.raises(InputError, match="seed must be"):
            EnsembleMember(seed)

    def test_other_columns_than_in_training(self):
        with pytest.raises(InputError, match="features must have 5 columns, as in training; got 4"):
            StackedMLP.from_seeds([0], MLPShape(5)).embed(np.zeros((2, 4)), 0)

    def test_state_dict_of_another_architecture(self):
        with pytest.raises(InputError, match=r"states\[0\] must hold the parameters"):
            StackedMLP.from_state_dicts([TabularMLP(4).state_dict()], MLPShape(5))

    def test_diverged_members_are_named(self, table):
        features, labels = table[0].copy(), table[1].copy()
        features[:2], labels[:2] = 1e7, [0, 1]  # one of the two is always far on the wrong side
        with pytest.raises(DivergedError, match=r"within 10000; members \[0\] did not keep it"):
            train_ensemble(features, labels, [EnsembleMember(0), EnsembleMember(1, np.array([0, 1]))], SHORT)


@pytest.mark.gpu
def test_a_gpu_gives_the_cpus_members_to_rounding(table):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    members = [EnsembleMember(seed, forget) for seed in range(4) for forget in (None, np.arange(9))]
    on_cpu = train_ensemble(*table, members)
    on_gpu = train_ensemble(*table, members, device="cuda")
    torch.testing.assert_close(on_gpu.flat.cpu(), on_cpu.flat, atol=5e-3, rtol=0)
    for i in range(len(members)):
        np.testing.assert_allclose(on_gpu.embed(table[0], i), on_cpu.embed(table[0], i), atol=2e-2)
