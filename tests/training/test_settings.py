import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from ruler.core.errors import InputError
from ruler.training.settings import SCHEDULES, TrainingSettings


def follow_torch(make: Any, n_steps: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make(optimizer)
    rates = []
    for _ in range(n_steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the last call asks for one step too many
            schedule.step() if len(rates) < n_steps else None
    return rates


@pytest.mark.parametrize("n_steps", [10, 37])
def test_schedules_follow_torch(n_steps: int) -> None:
    ours = {name: [share(step, n_steps) for step in range(n_steps)] for name, share in SCHEDULES.items()}
    cosine = follow_torch(lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, n_steps), n_steps)
    one_cycle = follow_torch(
        lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 1.0, n_steps, cycle_momentum=False), n_steps
    )
    assert ours["cosine"] == pytest.approx(cosine, abs=1e-12)
    assert ours["one_cycle"] == pytest.approx(one_cycle, abs=1e-12)
    assert ours["constant"] == [1.0] * n_steps


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_one_cycle_starts_at_its_peak_when_there_is_no_time_to_rise(n_steps: int) -> None:
    assert SCHEDULES["one_cycle"](0, n_steps) == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"precision": "float16"},
            "precision must be one of bfloat16, float32; got 'float16'. Did you mean 'bfloat16'",
        ),
        ({"schedule": "cosinus"}, "schedule must be one of constant, cosine, one_cycle; got 'cosinus'"),
        ({"augment": "flip"}, "augment must be one of crop, flip_crop, none; got 'flip'"),
        ({"records_per_epoch": 0}, "records_per_epoch must be a whole number of at least 1; got 0"),
    ],
)
def test_settings_name_the_broken_rule(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(TrainingSettings(), **change)
