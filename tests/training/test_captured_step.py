"""The captured step on the CPU: a stand-in for CUDA's graphs runs the function anew where a graph would replay it."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ruler.core.errors import DivergedError
from ruler.testing.methods import make_example
from ruler.training import loop
from ruler.training.batches import Batches
from ruler.training.cuda_graph import CapturedStep, Function, can_capture
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import Step, cross_entropy, make_optimizer
from ruler.unlearning import METHODS, unlearn

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(50, 4, generator=DRAW)
LABELS = (ROWS[:, 0] > 0).long()
DATA = {"data": (ROWS, LABELS)}


class StandIn:
    """Warms up, undoes it and hands the function back, as a capture does; counts what was replayed."""

    def __init__(self, error: Exception | None = None) -> None:
        self.n_captured = self.n_replayed = 0
        self.error = error

    def __call__(self, step: Function, undo: Callable[[], None], device: torch.device) -> Function:
        for _ in range(3):
            step()
        undo()
        if self.error is not None:
            raise self.error
        self.n_captured += 1

        def replay() -> torch.Tensor:
            self.n_replayed += 1
            return step()

        return replay


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    graphs = StandIn()
    monkeypatch.setattr(loop, "can_capture", lambda parameters, streams: True)
    monkeypatch.setattr(loop, "GraphCapture", lambda: graphs)
    monkeypatch.setattr(loop, "make_optimizer", lambda parameters, settings, **_: make_optimizer(parameters, settings))
    return graphs


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


def compare_with_plain_run(settings: TrainingSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    captured, plain = make_model(), make_model()
    losses = optimize(captured, cross_entropy, DATA, settings)
    monkeypatch.setattr(loop, "can_capture", lambda parameters, streams: False)
    assert losses == optimize(plain, cross_entropy, DATA, settings)
    assert torch.equal(flatten(captured), flatten(plain))


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "one_cycle"])
def test_a_captured_run_equals_the_plain_one(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, name: str, schedule: str
) -> None:
    settings = TrainingSettings(
        epochs=5, batch_size=16, optimizer=name, momentum=0.9, weight_decay=0.01, schedule=schedule
    )
    compare_with_plain_run(settings, monkeypatch)
    assert stand_in.n_captured == 2  # 16 records, and the 2 of the last batch once they were met often enough
    assert stand_in.n_replayed == 5 * 3 + 3


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.edit is None])
def test_a_captured_method_equals_the_plain_one(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    model, records = make_example(METHODS[method].kind)
    if METHODS[method].kind in ("any", "classifier"):  # the example has dropout, which is drawn on the host here
        model, records = make_model(), {"forget": (ROWS[:11], LABELS[:11]), "retain": (ROWS[11:], LABELS[11:])}
    n_at_once = 10 if method == "sisa" else 8  # a slice of SISA's would leave one record alone to batch norm
    settings = METHODS[method].settings(epochs=3, batch_size=n_at_once)

    def run() -> torch.Tensor:
        return flatten(unlearn(method, model, forget=records["forget"], retain=records["retain"], settings=settings))

    captured = run()
    assert stand_in.n_replayed > 0 or method in ("jit", "noisy_sgd")  # which draw noise, here on the host
    monkeypatch.setattr(loop, "can_capture", lambda parameters, streams: False)
    assert torch.equal(captured, run())


def make_step(objective: Any = cross_entropy) -> Step:
    model = make_model()
    return Step(model, objective, make_optimizer(list(model.parameters()), TrainingSettings()))


def test_the_first_shape_is_captured_at_once_and_few_others_later() -> None:
    graphs = StandIn()
    run = CapturedStep(make_step(), graphs)
    captured = []
    for _ in range(4):
        for size in (16, 5, 6, 7, 8, 9):
            run(((ROWS[:size], LABELS[:size]),))
            captured.append(graphs.n_captured)
    assert captured[:12] == [1] * 12
    assert captured[-1] == 4


def test_a_replay_reads_the_batch_of_its_own_step() -> None:
    run, reference = CapturedStep(make_step(), StandIn()), make_step()
    for start in (0, 16, 32):
        batch = (ROWS[start : start + 16], LABELS[start : start + 16])
        assert torch.equal(run((batch,)), reference((batch,)))


def test_what_cannot_be_captured_is_taken_as_it_is() -> None:
    graphs = StandIn(RuntimeError("operation not permitted when stream is capturing"))
    step, reference = make_step(), make_step()
    run = CapturedStep(step, graphs)
    for _ in range(4):
        run(((ROWS, LABELS),))
        reference(((ROWS, LABELS),))
    assert torch.equal(flatten(step.model), flatten(reference.model))
    assert graphs.n_replayed == 0


@pytest.mark.parametrize("draw", [lambda: torch.rand(()).item(), random.random, np.random.rand])
def test_a_step_that_draws_on_the_host_is_never_frozen(draw: Callable[[], float]) -> None:
    def seed() -> None:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)

    def objective(model: nn.Module, batch: Any) -> torch.Tensor:
        return draw() * cross_entropy(model, batch)

    graphs = StandIn()
    step, reference = make_step(objective), make_step(objective)
    run = CapturedStep(step, graphs)
    seed()
    losses = [run(((ROWS, LABELS),)).item() for _ in range(3)]
    seed()
    assert losses == [reference(((ROWS, LABELS),)).item() for _ in range(3)]
    assert graphs.n_captured == 0


def test_a_broken_objective_shows_its_own_error() -> None:
    run = CapturedStep(make_step(), StandIn())
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        run(((ROWS[:, :2], LABELS),))


@pytest.mark.parametrize(("bad_step", "good_epoch"), [(5, 1), (4, 0), (0, 0)])
def test_a_diverging_run_goes_back_to_the_start_of_the_last_epoch_that_began_well(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, bad_step: int, good_epoch: int
) -> None:
    """Three epochs of four steps; a state is good if the loss that it gave is, so that step 4 condemns its own."""
    model = make_model()
    starts = [flatten(model)]
    n_losses = 0
    plain = CapturedStep.__call__

    def spoil(self: CapturedStep, batches: Any) -> torch.Tensor:
        nonlocal n_losses
        n_losses += 1
        return plain(self, batches) * (float("nan") if n_losses == bad_step + 1 else 1)

    monkeypatch.setattr(CapturedStep, "__call__", spoil)
    epoch = bad_step // 4 + 1
    with pytest.raises(
        DivergedError, match=f"loss must stay finite and within 10000; got nan in epoch {epoch}"
    ) as caught:
        optimize(
            model,
            cross_entropy,
            DATA,
            TrainingSettings(epochs=3, batch_size=13),
            on_epoch=lambda epoch, loss: starts.append(flatten(model)),
        )
    assert torch.equal(flatten(model), starts[good_epoch])
    assert caught.value.last_good_state is not None
    torch.testing.assert_close(caught.value.last_good_state, dict(model.state_dict()), atol=0, rtol=0)


def test_graphs_are_for_cuda_and_records_that_lie_there() -> None:
    model = nn.Linear(4, 2)
    assert not can_capture(list(model.parameters()), [Batches((ROWS, LABELS), model, batch_size=4)])
