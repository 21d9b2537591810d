import torch
from torch import nn

from ruler.training.settings import TrainingSettings
from ruler.training.steps import compute_logits, make_optimizer, set_rate, use_precision


def test_rates_are_set_in_place_where_they_are_tensors() -> None:
    optimizer = make_optimizer([nn.Parameter(torch.zeros(1))], TrainingSettings())
    set_rate(optimizer, 0.5)
    assert optimizer.param_groups[0]["lr"] == 0.5
    held = optimizer.param_groups[0]["lr"] = torch.tensor(1.0)
    set_rate(optimizer, 0.25)
    assert held.item() == 0.25


def test_bfloat16_reaches_products_alone() -> None:
    model, rows = nn.Linear(4, 2), torch.randn(3, 4)
    with use_precision("float32", torch.device("cpu")):
        assert model(rows).dtype == torch.float32
    with use_precision("bfloat16", torch.device("cpu")):
        assert model(rows).dtype == torch.bfloat16
    assert model.weight.dtype == torch.float32


def test_logits_are_found_in_model_outputs_and_mappings() -> None:
    class Output:
        logits = torch.ones(2, 2)

    class Wrapped(nn.Module):
        def forward(self, ids: torch.Tensor) -> Output:
            return Output()

    assert torch.equal(compute_logits(Wrapped(), {"ids": torch.zeros(2, 3)}), Output.logits)
