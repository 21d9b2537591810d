"""A fused pass is the layers' own, bit for bit, and is taken only where it is."""

import pytest
import torch
from torch import nn

from ruler.models import fused_pass
from ruler.models.fused_pass import choose_block_rows, rounds_blocks_alike
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
        monkeypatch.setattr(fused_pass, "rounds_blocks_alike", lambda *shape: False)
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


def test_blocks_are_used_where_products_round_alike():
    assert choose_block_rows(500, (4, 128, 2)) == 500
    n_rows, widths = 4000, (4, 128, 2)
    alike = rounds_blocks_alike(n_rows, widths, torch.get_num_threads())
    assert choose_block_rows(n_rows, widths) == (fused_pass.BLOCK_ROWS if alike else n_rows)


def test_products_that_round_otherwise_in_parts_are_noticed(monkeypatch):
    def add_rounded(total, gradient, inputs):
        found = (gradient.T.double() @ inputs.double()).float()  # each part is rounded once more
        total.resize_(found.shape).copy_(found + total if total.numel() else found)

    shape = (3000, (8, 64, 2), torch.get_num_threads())
    rounds_blocks_alike.cache_clear()
    monkeypatch.setattr(fused_pass, "add_product", add_rounded)
    assert not rounds_blocks_alike(*shape)
    rounds_blocks_alike.cache_clear()


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
