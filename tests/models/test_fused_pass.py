"""A fused pass is the layers' own, bit for bit, and is taken only where it is."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from ruler.models import fused_pass
from ruler.models.products import TORCH
from ruler.models.tabular_mlp import MaskReplay, TabularMLP, replay_masks


def run(model, rows, labels, replay=None):
    """Logits and gradients of a step."""
    torch.manual_seed(7)
    model.zero_grad()
    if replay is None:
        logits = model(rows)
    else:
        with replay_masks(replay):
            logits = model(rows)
    nn.functional.cross_entropy(logits, labels).backward()
    return [logits.detach(), *(value.grad.clone() for value in model.parameters() if value.grad is not None)]


@pytest.fixture
def make_case():
    def make(n=1600, d=6, classes=2, hidden=128, rate=0.2):
        torch.manual_seed(3)
        model = TabularMLP(d, classes, hidden, rate).train()
        return model, torch.randn(n, d), torch.randint(0, classes, (n,))

    return make


def is_fused(model, rows):
    torch.manual_seed(0)
    with replay_masks(MaskReplay()):
        return model(rows).grad_fn.name() == "FusedPassBackward"


@pytest.mark.parametrize("is_split", [True, False])
@pytest.mark.parametrize(
    "size",
    [
        {"n": 1},
        {"n": 700},
        {"n": 4000},
        {"n": 2305, "d": 14, "classes": 5},
        {"hidden": 24},
        {"rate": 0.5},
        {"rate": 0.3},
    ],
)
def test_logits_and_gradients_are_those_of_the_layers(make_case, size, is_split, monkeypatch):
    if not is_split:
        monkeypatch.setattr(fused_pass, "choose_products", lambda n_rows, widths: (n_rows, (TORCH,) * 3))
    case = make_case(**size)
    assert is_fused(*case[:2])
    assert all(torch.equal(a, b) for a, b in zip(run(*case, MaskReplay()), run(*case), strict=True))


def test_two_passes_before_a_gradient_read_the_masks_in_order(make_case):
    model, rows, labels = make_case()

    def total(rows_of_first):
        torch.manual_seed(1)
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(rows[rows_of_first:]), labels[rows_of_first:])
        (loss - 0.3 * nn.functional.cross_entropy(model(rows[:rows_of_first]), labels[:rows_of_first])).backward()
        return [value.grad.clone() for value in model.parameters()]

    plain = total(100)
    with replay_masks(MaskReplay()):
        fused = total(100)
    assert all(torch.equal(a, b) for a, b in zip(plain, fused, strict=True))


def test_a_gradient_that_is_not_contiguous_gives_those_of_the_layers(make_case):
    def run_transposed(replay=None):
        torch.manual_seed(7)
        model.zero_grad()
        with replay_masks(replay) if replay else nullcontext():
            logits = model(rows)
        logits.backward(gradient)
        return [value.grad.clone() for value in model.parameters()]

    model, rows, _ = make_case()
    gradient = torch.randn(2, len(rows)).t()
    fused = run_transposed(MaskReplay())
    assert all(torch.equal(a, b) for a, b in zip(fused, run_transposed(), strict=True))


@pytest.mark.parametrize("what", ["eval", "frozen", "hook", "double", "other layer", "rates", "no rows", "no gradient"])
def test_other_passes_are_left_to_the_layers(make_case, what):
    model, rows, _ = make_case(n=40)
    seen = []
    if what == "eval":
        model.eval()
    elif what == "frozen":
        model.net[0].weight.requires_grad_(False)
    elif what == "hook":
        model.net[3].register_forward_hook(lambda *given: seen.append(given))
    elif what == "double":
        model, rows = model.double(), rows.double()
    elif what == "other layer":
        model.net[1] = nn.LeakyReLU()
    elif what == "rates":
        model.net[2].p = 0.1
    elif what == "no rows":
        rows = rows[:0]
    elif what == "no gradient":
        rows.requires_grad_()
    assert not is_fused(model, rows)
    assert len(seen) == (what == "hook")


def test_a_second_gradient_of_a_pass_fails(make_case):
    model, rows, labels = make_case(n=40)
    torch.manual_seed(0)
    with replay_masks(MaskReplay()):
        loss = nn.functional.cross_entropy(model(rows), labels)
    loss.backward(retain_graph=True)
    with pytest.raises(AttributeError, match="units"):
        loss.backward()
