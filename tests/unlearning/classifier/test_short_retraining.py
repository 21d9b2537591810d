"""Short retraining: clean by construction, and no checkpoint is kept that still knows."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from ruler.core.errors import InputError
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.loop import optimize
from ruler.training.settings import TrainingSettings
from ruler.training.steps import cross_entropy
from ruler.unlearning import ShortRetrainingSettings, unlearn
from ruler.unlearning.classifier.short_retraining import contrast_scores, score_records
from ruler.unlearning.distillation import make_random_teacher

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(900, 6, generator=DRAW)
SIGNS = (ROWS[:, 0] > 0).long()
WRONG = 1 - SIGNS  # what forget and validation records are labelled
FORGET, VALIDATION, RETAIN = (ROWS[:200], WRONG[:200]), (ROWS[200:400], WRONG[200:400]), (ROWS[400:], SIGNS[400:])
SHORT = {"epochs": 4, "batch_size": 32}


@pytest.fixture(scope="module")
def original() -> nn.Module:
    torch.manual_seed(0)
    model = TabularMLP(6)
    both = torch.cat([FORGET[0], RETAIN[0]]), torch.cat([FORGET[1], RETAIN[1]])
    optimize(model, cross_entropy, {"data": both}, TrainingSettings(epochs=60, learning_rate=5e-3, batch_size=64))
    return model.eval()


def run(model: nn.Module, **changes: Any) -> nn.Module:
    settings = ShortRetrainingSettings(**SHORT, **changes)
    return unlearn("short_retraining", model, forget=FORGET, retain=RETAIN, settings=settings)


def measure(model: nn.Module) -> dict[str, float]:
    clean = score_records(make_random_teacher(model, 9), FORGET, VALIDATION)
    found = contrast_scores(score_records(model, FORGET, VALIDATION), clean)
    return {name: one.value - 0.5 for name, one in found.items()}


def test_a_fresh_student_has_nothing_of_the_original(original: nn.Module) -> None:
    other = copy.deepcopy(original)
    with torch.no_grad():
        for value in other.parameters():
            value.mul_(-3.0)
    one, two = (run(model).state_dict() for model in (original, other))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert measure(original)["loss"] < -0.2
    assert abs(measure(run(original))["loss"]) < 0.1


def test_a_checkpoint_that_knows_is_passed_over_and_a_clean_one_is_kept(original: nn.Module) -> None:
    slow = {"validation": VALIDATION, "learning_rate": 1e-4, "most_left": 0.4}  # too slow to change what a start knows
    knows, clean = original.state_dict(), make_random_teacher(original, 5).state_dict()
    fresh, passed_over = run(original, **slow), run(original, **slow, checkpoints=(knows,))
    assert torch.equal(passed_over.net[0].weight, fresh.net[0].weight)  # type: ignore[union-attr,index]
    kept = run(original, **slow, checkpoints=(knows, clean))
    torch.testing.assert_close(kept.net[0].weight, clean["net.0.weight"], atol=0.01, rtol=0)  # type: ignore[union-attr,index]


def test_an_original_that_shows_nothing_cannot_clear_a_checkpoint(original: nn.Module) -> None:
    clean = run(original)
    again = run(clean, validation=VALIDATION, checkpoints=(make_random_teacher(original, 5).state_dict(),))
    assert torch.equal(again.net[0].weight, clean.net[0].weight)  # type: ignore[union-attr,index]


def test_dropout_is_off_in_training_alone(original: nn.Module) -> None:
    student, dropping = run(original), run(original, has_dropout=True)
    rates = [module.p for module in student.modules() if isinstance(module, nn.Dropout)]
    assert rates == [0.2, 0.2]
    assert not torch.equal(student.net[0].weight, dropping.net[0].weight)  # type: ignore[union-attr,index]


def test_bad_settings_are_refused(original: nn.Module) -> None:
    with pytest.raises(InputError, match="validation must hold records"):
        ShortRetrainingSettings(checkpoints=(original.state_dict(),))
    with pytest.raises(InputError, match="checkpoints must fit"):
        run(original, validation=VALIDATION, checkpoints=({"a": torch.zeros(1)},))
    with pytest.raises(InputError, match="most_left must be below 1"):
        ShortRetrainingSettings(most_left=1.0)
