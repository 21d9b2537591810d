from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ruler.core.errors import DivergedError, InputError
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.batches import Batches
from ruler.training.classifier import train_classifier
from ruler.training.loop import optimize
from ruler.training.settings import SCHEDULES, TrainingSettings
from ruler.training.steps import cross_entropy

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = np.random.default_rng(0)
ROWS = torch.tensor(DRAW.normal(size=(40, 3)), dtype=torch.float32)
LABELS = (ROWS[:, 0] > 0).long()
DATA = {"data": (ROWS, LABELS)}


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def test_full_batch_training_equals_the_protocol_spelled_out() -> None:
    model = train_classifier(lambda: TabularMLP(3), (ROWS, LABELS), seed=7)

    torch.manual_seed(7)
    np.random.seed(7)
    reference = TabularMLP(3)
    adam = torch.optim.Adam(reference.parameters(), lr=1e-3)
    reference.train()
    for _ in range(50):
        adam.zero_grad()
        functional.cross_entropy(reference(ROWS), LABELS).backward()
        adam.step()

    assert torch.equal(flatten(model), flatten(reference))
    assert not model.training


def test_training_leaves_the_callers_random_streams_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    train_classifier(lambda: TabularMLP(3), (ROWS, LABELS), seed=7, settings=TrainingSettings(epochs=2))
    assert (torch.rand(1).item(), np.random.rand()) == expected


def test_mini_batches_repeat_with_the_seed_and_learn() -> None:
    settings = TrainingSettings(epochs=20, batch_size=16, learning_rate=1e-2)
    first, again, other = (
        flatten(train_classifier(lambda: TabularMLP(3), (ROWS, LABELS), seed=seed, settings=settings))
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_order_seed_alone_changes_a_mini_batch_run() -> None:
    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimize(model, cross_entropy, DATA, TrainingSettings(epochs=2, batch_size=8), seed=seed)
        return flatten(model)

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_a_loader_trains_as_its_tensors_do() -> None:
    loader = DataLoader(TensorDataset(ROWS, LABELS), batch_size=40)
    settings = TrainingSettings(epochs=3)
    by_pair = train_classifier(lambda: nn.Linear(3, 2), (ROWS, LABELS), seed=0, settings=settings)
    by_loader = train_classifier(lambda: nn.Linear(3, 2), loader, seed=0, settings=settings)
    assert torch.equal(flatten(by_pair), flatten(by_loader))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_every_optimizer_follows_torch(name: str) -> None:
    settings = TrainingSettings(epochs=3, optimizer=name, momentum=0.5, weight_decay=0.1, learning_rate=0.01)
    model = train_classifier(lambda: nn.Linear(3, 2), (ROWS, LABELS), seed=0, settings=settings)
    torch.manual_seed(0)
    reference = nn.Linear(3, 2)
    make: Any = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[name]
    extra = {"momentum": 0.5} if name == "sgd" else {}
    optimizer = make(reference.parameters(), lr=0.01, weight_decay=0.1, **extra)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(reference(ROWS), LABELS).backward()
        optimizer.step()
    assert torch.equal(flatten(model), flatten(reference))


@pytest.mark.parametrize("schedule", ["cosine", "one_cycle"])
def test_a_schedule_sets_the_rate_of_every_step(schedule: str) -> None:
    settings = TrainingSettings(epochs=4, batch_size=16, learning_rate=0.1, optimizer="sgd", schedule=schedule)
    model = train_classifier(lambda: nn.Linear(3, 2), (ROWS, LABELS), seed=0, settings=settings)
    torch.manual_seed(0)
    reference = nn.Linear(3, 2)
    sgd = torch.optim.SGD(reference.parameters(), lr=0.1)
    batches = Batches(
        (ROWS, LABELS), reference, batch_size=16, seed=int(np.random.SeedSequence([0, 0]).generate_state(1)[0])
    )
    rates = [0.1 * SCHEDULES[schedule](step, 12) for step in range(12)]
    for _ in range(4):
        for inputs, labels in batches:
            sgd.param_groups[0]["lr"] = rates.pop(0)
            sgd.zero_grad()
            functional.cross_entropy(reference(inputs), labels).backward()
            sgd.step()
    assert torch.equal(flatten(model), flatten(reference))


def test_a_schedule_needs_to_know_its_end() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(zip(ROWS, LABELS, strict=True))

    loader = DataLoader(Stream(), batch_size=8)
    optimize(nn.Linear(3, 2), cross_entropy, {"data": loader}, TrainingSettings(epochs=1))
    with pytest.raises(
        InputError, match="schedule must be 'constant' for a loader that does not know its length; got 'cosine'"
    ):
        optimize(nn.Linear(3, 2), cross_entropy, {"data": loader}, TrainingSettings(schedule="cosine"))


def test_bfloat16_learns_what_float32_learns_and_keeps_float32_weights() -> None:
    settings = TrainingSettings(epochs=5, batch_size=16)
    exact, rough = (
        train_classifier(lambda: TabularMLP(3), (ROWS, LABELS), seed=0, settings=replace(settings, precision=precision))
        for precision in ("float32", "bfloat16")
    )
    assert {value.dtype for value in rough.state_dict().values()} == {torch.float32}
    distance = (flatten(exact) - flatten(rough)).norm() / flatten(exact).norm()
    assert 0 < distance < 0.1


def test_only_the_first_source_is_drawn_in_part_and_augmented() -> None:
    met: list[tuple[int, int]] = []
    images = torch.ones(20, 1, 6, 6)

    def objective(model: nn.Module, first: Any, second: Any) -> torch.Tensor:
        met.append((len(first[1]), len(second[1])))
        assert (second[0] == 1).all()
        assert (first[0] == 0).any()
        return cross_entropy(model, first) + cross_entropy(model, second)

    sources = {"retain": (images, LABELS[:20]), "forget": (images[:6], LABELS[:6])}
    settings = TrainingSettings(epochs=2, batch_size=8, records_per_epoch=12, augment="crop")
    optimize(nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), objective, sources, settings)
    assert met == [(8, 6), (4, 6)] * 2


def test_epochs_are_reported_with_their_mean_loss() -> None:
    seen: list[tuple[int, float]] = []
    history = optimize(
        nn.Linear(3, 2),
        cross_entropy,
        DATA,
        TrainingSettings(epochs=3, batch_size=16),
        on_epoch=lambda epoch, loss: seen.append((epoch, loss)),
    )
    assert seen == list(enumerate(history, start=1))


def test_an_epoch_is_a_pass_over_the_first_source_and_others_cycle() -> None:
    met: list[tuple[int, int]] = []

    def objective(model: nn.Module, first: Any, second: Any) -> torch.Tensor:
        met.append((len(first[1]), len(second[1])))
        return cross_entropy(model, first) + cross_entropy(model, second)

    sources = {"retain": (ROWS, LABELS), "forget": (ROWS[:6], LABELS[:6])}
    optimize(nn.Linear(3, 2), objective, sources, TrainingSettings(epochs=2, batch_size=16))
    assert met == [(16, 6), (16, 6), (8, 6)] * 2


def test_a_source_that_starts_over_is_shuffled_anew() -> None:
    orders: list[list[float]] = []

    def objective(model: nn.Module, first: Any, second: Any) -> torch.Tensor:
        orders.append(second[0][:, 0].tolist())
        return cross_entropy(model, first)

    sources = {"retain": (ROWS[:20], LABELS[:20]), "forget": (ROWS[:10], LABELS[:10])}
    optimize(nn.Linear(3, 2), objective, sources, TrainingSettings(epochs=1, batch_size=10))
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_modes_and_gradients_are_put_back() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    model[1].train()
    optimize(model, cross_entropy, DATA, TrainingSettings(epochs=1))
    assert [module.training for module in model] == [False, True, False]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_frozen_parameters_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    before = flatten(model[0])
    optimize(model, cross_entropy, DATA, TrainingSettings(epochs=2))
    assert torch.equal(flatten(model[0]), before)


def test_a_diverging_run_stops_in_the_last_good_state() -> None:
    states: list[torch.Tensor] = []

    def explode(model: nn.Module, batch: Any) -> torch.Tensor:
        states.append(flatten(model))
        loss = cross_entropy(model, batch)
        return loss * float("nan") if len(states) == 4 else loss

    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    with pytest.raises(DivergedError, match="loss must stay finite and within 10000; got nan in epoch 4") as caught:
        optimize(model, explode, DATA, TrainingSettings(epochs=9))
    assert torch.equal(flatten(model), states[2])
    assert caught.value.last_good_state is not None
    torch.testing.assert_close(caught.value.last_good_state, dict(model.state_dict()))


def test_a_loss_beyond_its_bound_stops_the_run_on_either_side() -> None:
    for sign in (1, -1):
        with pytest.raises(DivergedError, match=r"within 0\.1; got -?\d"):
            optimize(
                nn.Linear(3, 2),
                lambda model, batch, sign=sign: sign * cross_entropy(model, batch),
                DATA,
                TrainingSettings(epochs=2, loss_bound=0.1),
            )


def test_parameters_that_overflow_in_the_last_step_are_noticed() -> None:
    model = nn.Linear(3, 2)
    before = flatten(model)
    with pytest.raises(DivergedError, match="parameters must stay finite; got NaN or inf after epoch 1"):
        optimize(
            model,
            lambda model, batch: cross_entropy(model, batch) * 1e4,
            DATA,
            TrainingSettings(epochs=1, optimizer="sgd", learning_rate=1e38, loss_bound=1e9),
        )
    assert torch.equal(flatten(model), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0; got 0.0"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number of at least 0"),
        ({"momentum": -0.1}, "momentum must be"),
        ({"loss_bound": 0.0}, "loss_bound must be"),
        ({"optimizer": "adan"}, "optimizer must be one of adam, adamw, sgd; got 'adan'. Did you mean 'adam'"),
    ],
)
def test_settings_name_the_broken_rule(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainingSettings(**change)


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="model must have parameters with requires_grad; got none"):
        optimize(nn.ReLU(), cross_entropy, DATA, TrainingSettings())


def test_a_loader_without_batches_is_refused() -> None:
    empty = DataLoader(TensorDataset(ROWS[:2], LABELS[:2]), batch_size=3, drop_last=True)
    with pytest.raises(InputError, match="data must yield at least one batch per epoch"):
        optimize(nn.Linear(3, 2), cross_entropy, {"data": empty}, TrainingSettings())


@pytest.mark.gpu
def test_training_on_cuda_stays_there_and_repeats() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    settings = TrainingSettings(epochs=5, batch_size=16)
    first, again = (
        train_classifier(lambda: TabularMLP(3).cuda(), (ROWS, LABELS), seed=0, settings=settings) for _ in "ab"
    )
    assert next(first.parameters()).is_cuda
    assert torch.equal(flatten(first), flatten(again))


def test_algorithms_are_fixed_while_a_model_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)  # its settings are there without it
    seen = []

    def objective(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        seen.append(torch.backends.cudnn.deterministic)
        return cross_entropy(model, batch)

    optimize(nn.Linear(3, 2), objective, {"data": (ROWS, LABELS)}, TrainingSettings(epochs=2))
    assert seen == [True, True]
    assert not torch.backends.cudnn.deterministic
