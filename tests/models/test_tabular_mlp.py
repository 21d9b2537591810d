import torch
from torch import nn

from ruler.models import TabularMLP


def test_parameters_carry_the_published_names() -> None:
    shapes = {name: tuple(value.shape) for name, value in TabularMLP(13, 3, hidden=16).state_dict().items()}
    assert shapes == {
        "net.0.weight": (16, 13),
        "net.0.bias": (16,),
        "net.3.weight": (16, 16),
        "net.3.bias": (16,),
        "net.6.weight": (3, 16),
        "net.6.bias": (3,),
    }


def test_initial_weights_are_those_of_plain_layers_built_in_order() -> None:
    torch.manual_seed(5)
    layers = [nn.Linear(4, 128), nn.Linear(128, 128), nn.Linear(128, 2)]
    torch.manual_seed(5)
    model = TabularMLP(4)
    for layer, built in zip(layers, (model.net[0], model.net[3], model.net[6]), strict=True):
        assert torch.equal(layer.weight, built.weight)
        assert torch.equal(layer.bias, built.bias)


def test_head_of_the_penultimate_representation_gives_the_logits() -> None:
    model, rows = TabularMLP(4).eval(), torch.randn(6, 4)
    representation = model.penultimate(rows)
    assert representation.min() >= 0
    assert torch.equal(model.net[6](representation), model(rows))


def test_dropout_is_active_in_train_mode_alone() -> None:
    model, rows = TabularMLP(4), torch.randn(6, 4)
    assert not torch.equal(model(rows), model(rows))
    model.eval()
    assert torch.equal(model(rows), model(rows))
    assert all(layer.p == 0.2 for layer in model.net if isinstance(layer, nn.Dropout))
