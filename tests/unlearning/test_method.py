"""The paper's methods: fine_tuning, gradient_ascent, neggrad_plus, scrub and bad_teacher.

Each file of a method holds its settings and its loss, and the losses are spelled out here once more.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import DivergedError, InputError, UnknownNameError
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.classifier import train_classifier
from ruler.training.settings import TrainingSettings
from ruler.unlearning import (
    METHODS,
    BadTeacherSettings,
    FineTuningSettings,
    GradientAscentSettings,
    NegGradPlusSettings,
    ScrubSettings,
    unlearn,
)

pytestmark = pytest.mark.usefixtures("one_thread")

DRAW = np.random.default_rng(0)
ROWS = torch.tensor(DRAW.normal(size=(60, 4)), dtype=torch.float32)
LABELS = (ROWS[:, 0] > 0).long()
FORGET, RETAIN = (ROWS[:8], LABELS[:8]), (ROWS[8:], LABELS[8:])
Loss = Callable[[nn.Module], torch.Tensor]
PAPER_METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "bad_teacher")


@pytest.fixture(scope="module")
def original() -> nn.Module:
    settings = TrainingSettings(epochs=10)
    return train_classifier(lambda: TabularMLP(4), (ROWS, LABELS), seed=0, settings=settings)


def flatten(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().float().flatten() for value in model.state_dict().values()])


def soften(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) at T = 2, batch mean, written out."""
    p, q = (functional.softmax(logits / 2, dim=1) for logits in (teacher, student))
    return (p * (p.log() - q.log())).sum(dim=1).mean()


def follow_protocol(original: nn.Module, make_loss: Callable[[nn.Module], torch.Tensor], epochs: int) -> nn.Module:
    torch.manual_seed(100)
    student = copy.deepcopy(original).train()
    adam = torch.optim.Adam(student.parameters(), lr=5e-4)
    for _ in range(epochs):
        adam.zero_grad()
        make_loss(student).backward()  # type: ignore[no-untyped-call]
        adam.step()
    return student


def list_losses(original: nn.Module) -> dict[str, tuple[Loss, int]]:
    teacher = copy.deepcopy(original).eval()
    torch.manual_seed(100)
    random = TabularMLP(4).eval()

    def entropy(model: nn.Module, records: Any) -> torch.Tensor:
        return functional.cross_entropy(model(records[0]), records[1])

    def distil(model: nn.Module, guide: nn.Module, sign: int) -> torch.Tensor:
        retain, forget = model(RETAIN[0]), model(FORGET[0])
        with torch.no_grad():
            guided_retain, guided_forget = guide(RETAIN[0]), guide(FORGET[0])
        kept = functional.cross_entropy(retain, RETAIN[1]) + soften(retain, guided_retain)
        return 0.6 * kept + sign * 0.4 * soften(forget, guided_forget)

    return {
        "gradient_ascent": (lambda m: -entropy(m, FORGET), 5),
        "neggrad_plus": (lambda m: 0.6 * entropy(m, RETAIN) - 0.4 * entropy(m, FORGET), 10),
        "fine_tuning": (lambda m: entropy(m, RETAIN), 10),
        "scrub": (lambda m: distil(m, teacher, -1), 10),
        "bad_teacher": (lambda m: distil(m, random, 1), 10),
    }


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_full_batch_unlearning_equals_the_protocol_spelled_out(original: nn.Module, method: str) -> None:
    loss, epochs = list_losses(original)[method]
    expected = follow_protocol(original, loss, epochs)
    unlearned = unlearn(method, original, forget=FORGET, retain=RETAIN)
    torch.testing.assert_close(flatten(unlearned), flatten(expected), atol=2e-6, rtol=0)
    assert (flatten(unlearned) - flatten(original)).abs().max() > 1e-3


def test_methods_move_the_loss_where_they_should(original: nn.Module) -> None:
    def measure(model: nn.Module, records: Any) -> float:
        return functional.cross_entropy(model.eval()(records[0]), records[1]).item()

    ascended = unlearn("gradient_ascent", original, forget=FORGET, retain=None)
    tuned = unlearn("fine_tuning", original, forget=None, retain=RETAIN)
    balanced = unlearn("neggrad_plus", original, forget=FORGET, retain=RETAIN)
    assert measure(ascended, FORGET) > measure(original, FORGET)
    assert measure(tuned, RETAIN) < measure(original, RETAIN)
    assert measure(balanced, FORGET) - measure(tuned, FORGET) > measure(balanced, RETAIN) - measure(tuned, RETAIN)


def test_the_teacher_seed_changes_bad_teacher_alone_in_its_teacher(original: nn.Module) -> None:
    first, other = (
        unlearn(
            "bad_teacher",
            original,
            forget=FORGET,
            retain=RETAIN,
            settings=BadTeacherSettings(teacher_seed=seed, epochs=1),
        )
        for seed in (100, 101)
    )
    assert not torch.equal(flatten(first), flatten(other))


def test_a_diverging_method_stops_and_hands_over_its_last_good_state(original: nn.Module) -> None:
    settings = GradientAscentSettings(epochs=200, learning_rate=1.0, loss_bound=50.0)
    with pytest.raises(DivergedError, match="loss must stay finite and within 50; got -") as caught:
        unlearn("gradient_ascent", original, forget=FORGET, retain=None, settings=settings)
    model = copy.deepcopy(original)
    model.load_state_dict(caught.value.last_good_state)
    assert functional.cross_entropy(model(FORGET[0]), FORGET[1]) < 200


@pytest.mark.parametrize(
    ("name", "settings", "epochs"),
    [
        ("gradient_ascent", GradientAscentSettings, 5),
        ("neggrad_plus", NegGradPlusSettings, 10),
        ("fine_tuning", FineTuningSettings, 10),
        ("scrub", ScrubSettings, 10),
        ("bad_teacher", BadTeacherSettings, 10),
    ],
)
def test_defaults_are_the_papers(name: str, settings: Any, epochs: int) -> None:
    assert METHODS[name].settings is settings
    chosen = settings()
    assert (chosen.epochs, chosen.learning_rate, chosen.seed, chosen.batch_size) == (epochs, 5e-4, 100, None)


def test_an_unknown_method_is_answered_with_the_nearest(original: nn.Module) -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'fine_tuning'"):
        unlearn("finetuning", original, forget=FORGET, retain=RETAIN)


def test_settings_of_another_method_are_refused(original: nn.Module) -> None:
    with pytest.raises(InputError, match="settings must be ScrubSettings for SCRUB; got BadTeacherSettings"):
        unlearn("scrub", original, forget=FORGET, retain=RETAIN, settings=BadTeacherSettings())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NegGradPlusSettings(retain_weight=1.0), "retain_weight must be below 1; got 1.0"),
        (lambda: ScrubSettings(retain_weight=0.0), "retain_weight must be a finite number above 0"),
        (lambda: ScrubSettings(temperature=0.0), "temperature must be a finite number above 0"),
        (lambda: BadTeacherSettings(teacher_seed=-1), "teacher_seed must be a whole number of at least 0"),
        (lambda: FineTuningSettings(augment="crop"), "augment must be 'none' in unlearning; got 'crop'"),
        (lambda: FineTuningSettings(seed=1.5), "seed must be a whole number"),  # type: ignore[arg-type]
    ],
)
def test_settings_name_the_broken_rule(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_subclass_with_another_default_is_checked_too() -> None:
    @dataclass(frozen=True)
    class Slower(NegGradPlusSettings):
        retain_weight: float = 0.9

    assert Slower().retain_weight == 0.9
    with pytest.raises(InputError, match=r"retain_weight must be below 1; got 1\.0"):
        Slower(retain_weight=1.0)


@pytest.mark.gpu
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_unlearning_on_cuda_stays_there_and_repeats(original: nn.Module, method: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    model = copy.deepcopy(original).cuda()
    first, again = (unlearn(method, model, forget=FORGET, retain=RETAIN) for _ in "ab")
    assert next(first.parameters()).is_cuda
    assert torch.equal(flatten(first), flatten(again))
