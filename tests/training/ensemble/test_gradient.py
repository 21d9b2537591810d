"""Dropout and gradient of stacked networks."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from ruler.training.ensemble import MLPShape, StackedMLP, dropout
from ruler.training.ensemble.dropout import KEPT_ROWS, DropoutStream, mix_
from ruler.training.ensemble.gradient import Pass, add_gradient, split_passes

CPU = torch.device("cpu")


def one_hot(labels, n_classes=2):
    return functional.one_hot(torch.as_tensor(labels), n_classes).T.float()


def make_stream(seeds=(3,), *, rate=0.2, width=128):
    return DropoutStream(seeds, rate=rate, width=width, device=CPU)


def draw_kept(stream, *, members=1, rows=400, width=128, position=0):
    units = torch.ones(members, rows, width)
    stream.drop_(units, position=position)
    return units


class TestDropout:
    def test_drops_the_asked_for_share_of_units_independently(self):
        kept = draw_kept(make_stream(), rows=8000)[0].double()
        n = kept.numel()
        assert abs(kept.mean() - 0.8) < 4 * (0.16 / n) ** 0.5
        centred = (kept - 0.8) / 0.4
        between_units = (centred.T @ centred / len(kept)).fill_diagonal_(0)  # 128 x 128 correlations
        assert between_units.abs().max() < 5.5 / len(kept) ** 0.5
        between_rows = (centred[:-1] * centred[1:]).mean(dim=0)
        assert between_rows.abs().max() < 4.5 / len(kept) ** 0.5

    def test_hash_is_splitmix64(self):
        weyl = 0x9E3779B97F4A7C15 - 2**64
        words = mix_(1234567 + torch.arange(1, 4) * weyl)
        known = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # the reference code's output
        assert [word % 2**64 for word in words.tolist()] == known

    def test_rate_is_exact_to_two_to_the_minus_16(self):
        lanes = torch.arange(-(2**15), 2**15).float()
        stream = make_stream(rate=0.2)
        assert abs((lanes <= stream.threshold).double().mean() - 0.2) < 2**-16

    def test_variance_over_streams_is_binomial(self):
        counts = [draw_kept(make_stream(seeds=[seed]), rows=400).sum().item() for seed in range(200)]
        expected = 400 * 128 * 0.16
        assert 0.7 * expected < np.var(counts) < 1.4 * expected

    @pytest.mark.parametrize(("seed", "position"), [(4, 0), (3, 400), (3, 1), (3, 10**12)])
    def test_seeds_and_positions_draw_apart(self, seed, position):
        agreement = draw_kept(make_stream()) == draw_kept(make_stream(seeds=[seed]), position=position)
        assert abs(agreement.double().mean() - 0.68) < 0.01  # 0.8^2 + 0.2^2: what independence gives

    def test_order_of_draws_is_that_of_the_one_by_one_loop(self, table):
        layers = MLPShape(5).view_layers(StackedMLP.from_seeds([0], MLPShape(5)).flat)
        sweep = Pass(torch.tensor(table[0]), one_hot(table[1]))
        chunks = split_passes([sweep, sweep], layers, chunk_rows=100)
        # all rows of one layer, all rows of the next, then the second pass
        assert [chunk.positions for chunk in chunks] == [(0, 150), (100, 250), (300, 450), (400, 550)]

    def test_members_with_one_seed_share_and_others_do_not(self):
        apart, together = make_stream(seeds=[3, 4]), make_stream(seeds=[4, 4])
        kept = draw_kept(apart, members=2)
        assert not torch.equal(kept[0], kept[1])
        shared = draw_kept(together, members=2)
        assert torch.equal(shared[0], kept[1])
        assert torch.equal(shared[1], kept[1])

    @pytest.mark.parametrize("position", [0, 1, KEPT_ROWS - 3, 5 * KEPT_ROWS + 77])
    def test_decisions_that_are_kept_are_those_of_the_hash(self, position):
        alone = draw_kept(make_stream(seeds=[4]), rows=KEPT_ROWS + 10, position=position)
        together = draw_kept(make_stream(seeds=[4, 4]), members=2, rows=KEPT_ROWS + 10, position=position)
        assert torch.equal(alone[0], together[0])

    def test_width_that_is_no_multiple_of_four(self):
        kept = draw_kept(make_stream(width=6), width=6)
        assert abs(kept.mean() - 0.8) < 0.03

    def test_rate_zero_drops_nothing(self):
        assert draw_kept(make_stream(rate=0.0)).all()


class TestKeptBlocks:
    def test_blocks_are_drawn_once_and_the_oldest_stream_goes_when_there_are_too_many(self, monkeypatch):
        drawn = []

        def read(stream, number):
            def draw():
                drawn.append((stream, number))
                return np.full(40, number, dtype=np.uint8)

            assert (blocks.read(stream, number, draw) == number).all()

        monkeypatch.setattr(dropout, "MOST_BYTES", 100)
        blocks = dropout.KeptBlocks()
        for stream, number in [("a", 0), ("a", 0), ("a", 1), ("b", 0), ("b", 0), ("a", 0), ("b", 0)]:
            read(stream, number)
        assert drawn == [("a", 0), ("a", 1), ("b", 0), ("a", 0)]
        for number in (1, 2, 2):  # the second is too many for a stream that is alone
            read("a", number)
        assert drawn[4:] == [("a", 1), ("a", 2), ("a", 2)]


def gradient_by_autograd(shape, flat, sweep, kept):
    """The loss as plain torch, with dropout's decisions given: an outside reference for both."""
    leaf = flat.clone().requires_grad_()
    layers = shape.view_layers(leaf)
    total = torch.zeros(())
    for i in range(len(flat)):
        first = functional.linear(sweep.features, layers.weight_1[i], layers.bias_1[i]).relu() * kept[0][i] / 0.8
        second = functional.linear(first, layers.weight_2[i], layers.bias_2[i]).relu() * kept[1][i] / 0.8
        logits = functional.linear(second, layers.weight_3[i], layers.bias_3[i])
        total = total + sweep.ce_weight * functional.cross_entropy(logits, sweep.targets.argmax(dim=0))
        if sweep.teacher is not None:
            student = (logits / sweep.temperature).log_softmax(dim=1)
            divergence = functional.kl_div(student, sweep.teacher[i].T, reduction="batchmean")
            total = total + sweep.kl_weight * divergence
    total.backward()
    return total.detach(), leaf.grad


@pytest.mark.parametrize("chunk_rows", [150, 64, 7])
@pytest.mark.parametrize("has_teacher", [False, True])
@pytest.mark.parametrize(("seeds", "hidden"), [([5, 6], 10), ([5], 16)])
def test_loss_and_gradient_equal_autograd(table, chunk_rows, has_teacher, seeds, hidden):
    features, labels = table
    shape = MLPShape(5, n_classes=3, hidden=hidden)
    flat = StackedMLP.from_seeds(range(len(seeds)), shape).flat
    teacher = torch.randn(len(seeds), 3, 150, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    sweep = Pass(torch.tensor(features), one_hot(labels, 3), -0.7)
    if has_teacher:
        sweep = Pass(sweep.features, sweep.targets, 0.6, -0.4, 2.0, teacher)
    stream = make_stream(seeds=seeds, width=hidden)
    kept = [draw_kept(stream, members=len(seeds), rows=150, width=hidden, position=at) for at in (600, 750)]
    gradient = torch.zeros_like(flat)
    layers = shape.view_layers(flat)
    loss = torch.zeros(len(seeds))
    for chunk in split_passes([sweep], layers, chunk_rows):
        loss += add_gradient(layers, shape.view_layers(gradient), chunk, stream, drawn=600)
    expected_loss, expected = gradient_by_autograd(shape, flat, sweep, kept)
    torch.testing.assert_close(loss.sum(), expected_loss, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(gradient, expected, atol=1e-7, rtol=1e-4)
