from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.errors import InputError
from ruler.core.types import Partition
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.checkpoints import CheckpointStore
from ruler.training.classifier import predict, train_classifier, train_tabular
from ruler.training.settings import TrainingSettings

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = np.random.default_rng(0)
ROWS = DRAW.normal(size=(30, 4)).astype(np.float32)
LABELS = (ROWS[:, 0] > 0).astype(np.int64)
PARTITION = Partition(forget=np.arange(0, 30, 3), retain=np.array([i for i in range(30) if i % 3]))
SHORT = TrainingSettings(epochs=3)


def test_an_oracle_is_a_model_trained_on_the_retain_rows_alone() -> None:
    oracle = train_tabular(ROWS, LABELS, PARTITION, seed=2, settings=SHORT)
    retain = (ROWS[PARTITION.retain], LABELS[PARTITION.retain])
    expected = train_classifier(lambda: TabularMLP(4), retain, seed=2, settings=SHORT)
    torch.testing.assert_close(oracle.state_dict(), expected.state_dict(), atol=0, rtol=0)
    assert not oracle.training


def test_original_and_oracle_differ_but_share_their_seed() -> None:
    original = train_tabular(ROWS, LABELS, seed=2, settings=SHORT)
    oracle = train_tabular(ROWS, LABELS, PARTITION, seed=2, settings=SHORT)
    distance = (original.net[3].weight - oracle.net[3].weight).abs().max()
    assert 0 < distance <= 2 * SHORT.epochs * SHORT.learning_rate * 1.01


def test_a_store_gives_the_finished_model_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    first = train_tabular(ROWS, LABELS, PARTITION, seed=2, settings=SHORT, store=store)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained twice")

    monkeypatch.setattr("ruler.training.classifier.train_classifier", refuse)
    again = train_tabular(ROWS, LABELS, PARTITION, seed=2, settings=SHORT, store=store)
    torch.testing.assert_close(again.state_dict(), first.state_dict(), atol=0, rtol=0)
    with pytest.raises(AssertionError, match="trained twice"):
        train_tabular(ROWS, LABELS, seed=2, settings=SHORT, store=store)


def test_more_classes_make_a_wider_head() -> None:
    assert train_tabular(ROWS, np.arange(30) % 5, seed=0, settings=SHORT).net[6].out_features == 5


def test_rows_and_labels_must_match() -> None:
    with pytest.raises(InputError, match=r"inputs must be \(n, n_features\) with one label per row; got \(30, 4\)"):
        train_tabular(ROWS, LABELS[:5], seed=0)


def test_predictions_of_a_loader_are_those_of_its_tensors_and_may_be_rough() -> None:
    model = nn.Linear(4, 2)
    expected = predict(model, (ROWS, LABELS))
    loader = DataLoader(TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(LABELS)), batch_size=8)
    np.testing.assert_allclose(predict(model, loader, batch_size=3).logits, expected.logits, atol=1e-6)
    rough = predict(model, (ROWS, LABELS), precision="bfloat16").logits
    assert 0 < np.abs(rough - expected.logits).max() < 0.05


def test_predictions_come_in_order_in_eval_mode_and_leave_the_mode() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout(0.5)).train()
    predictions = predict(model, (ROWS, LABELS), batch_size=7)
    assert model.training
    assert model[1].training
    np.testing.assert_allclose(predictions.logits, model[0](torch.from_numpy(ROWS)).detach().numpy(), atol=1e-6, rtol=0)
    np.testing.assert_array_equal(predictions.labels, LABELS)
