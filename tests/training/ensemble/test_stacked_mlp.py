"""Weights of stacked networks, in and out."""

import torch

from ruler.models.tabular_mlp import TabularMLP
from ruler.training.ensemble import MLPShape, StackedMLP


def test_initial_weights_are_the_protocols():
    models = StackedMLP.from_seeds([3, 11, 3], MLPShape(13))
    for member, seed in enumerate([3, 11, 3]):
        torch.manual_seed(seed)
        for name, value in TabularMLP(13).state_dict().items():
            assert torch.equal(models.state_dict(member)[name], value)


def test_state_dicts_go_in_and_out(table):
    states = [TabularMLP(5).state_dict() for _ in range(2)]
    stacked = StackedMLP.from_state_dicts(states, MLPShape(5))
    swapped = stacked.select([1, 0, 1])
    assert len(swapped) == 3
    for name, value in states[1].items():
        assert torch.equal(swapped.state_dict(0)[name], value)
        assert torch.equal(swapped.state_dict(2)[name], value)
