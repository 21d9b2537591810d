"""Dropout draws the masks of torch's sequential generator."""

import pytest
import torch

from ruler.models.dropout import Dropout, draw_noise


@pytest.mark.parametrize("shape", [(1, 1), (455, 128), (3000, 128)])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5])
def test_masks_are_those_of_the_sequential_generator(shape: tuple[int, int], rate: float) -> None:
    units = torch.ones(shape)
    torch.manual_seed(11)
    noise = draw_noise(units, rate)
    after = torch.rand(1)
    torch.manual_seed(11)
    expected = torch.empty(shape, dtype=torch.double).uniform_() < 1 - rate
    assert torch.equal(noise > 0, expected)
    assert torch.equal(after, torch.rand(1)), "the stream must go on where torch's would"


def test_output_and_gradient_equal_a_masked_product() -> None:
    units = torch.randn(50, 8, requires_grad=True)
    torch.manual_seed(2)
    dropped = Dropout(0.2)(units)
    dropped.sum().backward()
    torch.manual_seed(2)
    noise = draw_noise(units.detach(), 0.2)
    assert torch.equal(dropped, units * noise)
    assert torch.equal(units.grad, noise)
    assert set(noise.unique().tolist()) == {0.0, 1.25}


def test_eval_mode_and_rate_zero_change_nothing_and_draw_nothing() -> None:
    units = torch.randn(5, 4)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.5).eval()(units), units)
    assert torch.equal(Dropout(0.0)(units), units)
    first = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(first, torch.rand(1))


def test_rows_out_of_order_in_memory_get_masks_by_position() -> None:
    wide = torch.ones(6, 4).T  # not contiguous
    torch.manual_seed(4)
    noise = draw_noise(wide, 0.5)
    torch.manual_seed(4)
    assert torch.equal(noise, draw_noise(torch.ones(4, 6), 0.5))
