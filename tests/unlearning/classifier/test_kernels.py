"""The two methods that change kernels before they fine-tune, ct and msg, against their definitions."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.unlearning import CtSettings, MsgSettings, unlearn
from ruler.unlearning.classifier.records import list_kernels
from ruler.unlearning.distillation import make_random_teacher

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
IMAGES = torch.randn(40, 2, 5, 5, generator=DRAW)
ROWS = torch.randn(40, 4, generator=DRAW)
LABELS = torch.randint(0, 3, (40,), generator=DRAW)
STILL = 1e-12  # a rate that moves nothing


@pytest.fixture
def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, (1, 2)), nn.Flatten(), nn.Linear(24, 3))


@pytest.fixture
def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 3))


def run(method: str, model: nn.Module, settings: Any) -> Any:
    inputs = IMAGES if isinstance(model[0], nn.Conv2d) else ROWS  # type: ignore[index]
    return unlearn(method, model, forget=(inputs[:6], LABELS[:6]), retain=(inputs[6:], LABELS[6:]), settings=settings)


def test_ct_transposes_kernels_and_nothing_else(convolutions: Any) -> None:
    found = run("ct", convolutions, CtSettings(learning_rate=STILL))
    torch.testing.assert_close(found[0].weight, convolutions[0].weight.transpose(2, 3))
    torch.testing.assert_close(found[2].weight, convolutions[2].weight)  # its square has one row
    torch.testing.assert_close(found[4].weight, convolutions[4].weight)
    assert not torch.equal(run("ct", convolutions, CtSettings())[4].weight, convolutions[4].weight)


def test_ct_transposes_squares_of_matrices_where_there_are_no_convolutions(perceptron: Any) -> None:
    found = run("ct", perceptron, CtSettings(learning_rate=STILL))
    torch.testing.assert_close(found[0].weight[:4], perceptron[0].weight[:4].T)
    torch.testing.assert_close(found[0].weight[4:], perceptron[0].weight[4:])
    torch.testing.assert_close(found[3].weight[:, :3], perceptron[3].weight[:, :3].T)


@pytest.mark.parametrize("name", ["convolutions", "perceptron"])
def test_msg_draws_the_weights_of_least_gradient_anew(name: str, request: pytest.FixtureRequest) -> None:
    model: Any = request.getfixturevalue(name)
    inputs = IMAGES if name == "convolutions" else ROWS
    loss = functional.cross_entropy(model(inputs[6:]), LABELS[6:]) - functional.cross_entropy(
        model(inputs[:6]), LABELS[:6]
    )
    names = [name for name, _ in model.named_parameters()]
    slopes = dict(zip(names, torch.autograd.grad(loss, list(model.parameters())), strict=True))
    found = dict(run("msg", model, MsgSettings(learning_rate=STILL, weight_decay=0.0, share=0.25)).named_parameters())
    fresh = make_random_teacher(model, 100).state_dict()
    for key, value in model.named_parameters():
        if key not in list_kernels(model):
            torch.testing.assert_close(found[key], value)
            continue
        n_least = round(0.25 * value.numel())
        is_least = slopes[key].abs() <= slopes[key].abs().flatten().kthvalue(n_least).values
        assert is_least.sum() == n_least
        torch.testing.assert_close(found[key], torch.where(is_least, fresh[key], value))


def test_msg_slows_all_other_weights_down(perceptron: Any) -> None:
    start = run("msg", perceptron, MsgSettings(learning_rate=STILL, weight_decay=0.0))
    settings: dict[str, Any] = {"epochs": 1, "batch_size": None, "weight_decay": 0.0, "learning_rate": 0.1}
    slow, even, still = (run("msg", perceptron, MsgSettings(slowness=pace, **settings)) for pace in (0.1, 1.0, 0.0))
    for key, value in start.named_parameters():
        moves = [dict(model.named_parameters())[key] - value for model in (slow, even, still)]
        is_fresh = (value != dict(perceptron.named_parameters())[key]) & (key in list_kernels(perceptron))
        torch.testing.assert_close(moves[0], torch.where(is_fresh, 1.0, 0.1) * moves[1], atol=1e-6, rtol=1e-4)
        torch.testing.assert_close(moves[2], is_fresh * moves[1], atol=1e-6, rtol=1e-4)


def test_a_model_without_kernels_is_refused() -> None:
    with pytest.raises(InputError, match="model must have convolutions or linear layers; got neither"):
        list_kernels(nn.LayerNorm(3))


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.0}, {"slowness": -1.0}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} must be "):
        MsgSettings(**wrong)
