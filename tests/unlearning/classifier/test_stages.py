"""Methods of several stages against their definitions: unsir, scrub_rewind, r2d and sisa."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.unlearning import (
    GradientAscentSettings,
    R2dSettings,
    RetrainSettings,
    ScrubRewindSettings,
    SisaSettings,
    UnsirSettings,
    unlearn,
)
from ruler.unlearning.classifier.unsir import train_noise

pytestmark = pytest.mark.usefixtures("one_thread")
DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(60, 4, generator=DRAW)
LABELS = torch.randint(0, 3, (60,), generator=DRAW)
FORGET, RETAIN = (ROWS[:9], LABELS[:9]), (ROWS[9:], LABELS[9:])


def build(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


@pytest.fixture
def model() -> nn.Module:
    return descend(build(), (ROWS, LABELS), 40)


def descend(model: nn.Module, pair: Any, epochs: int, rate: float = 0.01) -> nn.Module:
    student = copy.deepcopy(model)
    mover = torch.optim.Adam(student.parameters(), lr=rate)
    for _ in range(epochs):
        mover.zero_grad()
        functional.cross_entropy(student(pair[0]), pair[1]).backward()  # type: ignore[no-untyped-call]
        mover.step()
    return student


def run(method: str, model: nn.Module, settings: Any, forget: Any = FORGET) -> nn.Module:
    return unlearn(method, model, forget=forget, retain=RETAIN, settings=settings)


def assert_alike(found: nn.Module, expected: nn.Module, atol: float = 1e-6) -> None:
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value, atol=atol, rtol=1e-5, msg=name)


def count_errors(model: nn.Module) -> int:
    return int((model(FORGET[0]).argmax(1) != FORGET[1]).sum())


def test_unsir_impairs_by_noise_and_repairs(model: nn.Module) -> None:
    settings = UnsirSettings(batch_size=None, learning_rate=0.01)
    torch.manual_seed(settings.seed)
    noise = train_noise(model, FORGET, settings)
    both = torch.cat([RETAIN[0], noise]), torch.cat([RETAIN[1], FORGET[1]])
    expected = descend(descend(model, both, 1), RETAIN, 1)
    assert_alike(run("unsir", model, settings), expected)


def test_the_noise_of_unsir_is_what_the_model_errs_on_most(model: nn.Module) -> None:
    settings = UnsirSettings()
    torch.manual_seed(0)
    start = torch.randn(9, 4)
    torch.manual_seed(0)
    trained = train_noise(model, FORGET, settings)
    losses = [functional.cross_entropy(model(rows), FORGET[1]).item() for rows in (start, trained)]
    assert losses[1] > 1.5 * losses[0]
    torch.manual_seed(0)
    short = train_noise(model, FORGET, UnsirSettings(noise_penalty=100.0))
    assert short.norm() < 0.5 * trained.norm()


def follow_scrub(original: nn.Module, epochs: int, n_ascents: int) -> list[nn.Module]:
    """The student after every epoch, from the formulas."""

    def diverge(student: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        p, q = (functional.softmax(m(rows) / 2, dim=1) for m in (original, student))
        return (p.detach() * (p.detach().log() - q.log())).sum(1).mean()

    student, found = copy.deepcopy(original), []
    for epoch in range(epochs):
        losses = [
            lambda: 0.99 * functional.cross_entropy(student(RETAIN[0]), RETAIN[1]) + 0.5 * diverge(student, RETAIN[0])
        ]
        if epoch < n_ascents:
            losses.insert(0, lambda: -diverge(student, FORGET[0]))
        for loss in losses:
            mover = torch.optim.SGD(student.parameters(), lr=0.5, momentum=0.9)
            mover.zero_grad()
            loss().backward()  # type: ignore[no-untyped-call]
            mover.step()
        found.append(copy.deepcopy(student))
    return found


def test_scrub_alternates_and_rewinds_to_the_epoch_whose_forget_error_fits(model: nn.Module) -> None:
    nn.init.normal_(model[3].bias, std=0.5)  # type: ignore[index, arg-type]
    known: dict[str, Any] = {"epochs": 8, "n_ascents": 4, "learning_rate": 0.5, "optimizer": "sgd", "momentum": 0.9}
    plain = ScrubRewindSettings(batch_size=None, **known)
    epochs = follow_scrub(model, 8, 4)
    assert_alike(run("scrub_rewind", model, plain), epochs[-1], atol=5e-4)  # ascent widens rounding
    errors = [count_errors(one) for one in epochs]
    assert len(set(errors)) > 1
    for wanted in range(10):
        settings = ScrubRewindSettings(batch_size=None, forget_error=wanted / 9, **known)
        gaps = [abs(error - wanted) for error in errors]
        last = max(place for place, gap in enumerate(gaps) if gap == min(gaps))
        assert_alike(run("scrub_rewind", model, settings), epochs[last], atol=5e-4)


def test_scrub_rewinds_to_the_error_on_validation_records_after_all_epochs(model: nn.Module) -> None:
    nn.init.normal_(model[3].bias, std=0.5)  # type: ignore[index, arg-type]
    known: dict[str, Any] = {"epochs": 8, "n_ascents": 4, "learning_rate": 0.5, "optimizer": "sgd", "momentum": 0.9}
    epochs = follow_scrub(model, 8, 4)
    errors, answers = [count_errors(one) for one in epochs], epochs[-1](ROWS[:30]).argmax(1)
    found = set()
    for n_wrong in (0, 10, 20, 30):
        labels = torch.where(torch.arange(30) < n_wrong, (answers + 1) % 3, answers)
        settings = ScrubRewindSettings(batch_size=None, validation=(ROWS[:30], labels), **known)
        gaps = [abs(error / 9 - n_wrong / 30) for error in errors]
        last = max(place for place, gap in enumerate(gaps) if gap == min(gaps))
        assert_alike(run("scrub_rewind", model, settings), epochs[last], atol=5e-4)
        found.add(last)
    assert len(found) > 1


def test_r2d_goes_on_from_the_checkpoint_on_retain_records_alone(model: nn.Module) -> None:
    early = descend(build(), (ROWS, LABELS), 10)
    settings = R2dSettings(epochs=20, share=0.25, learning_rate=0.01, checkpoint=early.state_dict())
    assert settings.n_rewound == 5
    found = run("r2d", model, settings)
    assert_alike(found, descend(early, RETAIN, 5))
    assert_alike(run("r2d", build(3), settings, forget=(ROWS[:2], LABELS[:2])), found)
    assert_alike(early, descend(build(), (ROWS, LABELS), 10))


def test_r2d_without_a_checkpoint_trains_the_epochs_before_on_all_records(model: nn.Module) -> None:
    settings = R2dSettings(epochs=8, share=0.75, learning_rate=0.01)
    expected = descend(descend(build(100), (ROWS, LABELS), 2), RETAIN, 6)
    assert_alike(run("r2d", model, settings), expected)


def test_a_checkpoint_of_another_model_is_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match="checkpoint must fit the model; got another one's state_dict"):
        run("r2d", model, R2dSettings(checkpoint=nn.Linear(2, 2).state_dict()))
    with pytest.raises(InputError, match=r"checkpoint must be a model's state_dict\(\); got str"):
        R2dSettings(checkpoint="model.pt")  # type: ignore[arg-type]


def test_sisa_depends_on_no_forget_record_and_on_no_original(model: nn.Module) -> None:
    settings = SisaSettings(epochs=6, learning_rate=0.01, batch_size=16)
    found = run("sisa", model, settings)
    other = torch.randn(9, 4, generator=DRAW), (FORGET[1] + 1) % 3
    again = run("sisa", build(7), settings, forget=other)
    assert all(torch.equal(one, two) for one, two in zip(found.parameters(), again.parameters(), strict=True))


def test_sisa_takes_in_slice_by_slice(model: nn.Module) -> None:
    whole = run("retrain", model, RetrainSettings(epochs=6, learning_rate=0.01))
    assert_alike(run("sisa", model, SisaSettings(epochs=6, learning_rate=0.01, n_slices=1)), whole)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(100))
    expected = build(100)
    for number in range(3):
        so_far = order[: 20 * (number + 1)]
        kept = so_far[so_far >= 9]
        expected = descend(expected, (ROWS[kept], LABELS[kept]), 3)  # 2 * 6 / (3 + 1) epochs of each slice
    assert_alike(run("sisa", model, SisaSettings(epochs=6, learning_rate=0.01, n_slices=3)), expected)


@pytest.mark.parametrize("n_slices", [1, 3, 5, 50])
def test_batch_norm_never_sees_one_record_alone(n_slices: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    for batch_size in range(2, 11):
        settings = SisaSettings(epochs=1, n_slices=n_slices, batch_size=batch_size)
        assert run("sisa", model, settings)(ROWS).isfinite().all()
    ascended = run("gradient_ascent", model, GradientAscentSettings(epochs=1, batch_size=8))
    assert_alike(ascended, run("gradient_ascent", model, GradientAscentSettings(epochs=1, batch_size=9)))
    plain = nn.Linear(4, 3)
    slow, fast = (GradientAscentSettings(epochs=1, batch_size=size, learning_rate=0.1) for size in (8, 9))
    assert not torch.equal(run("gradient_ascent", plain, slow).weight, run("gradient_ascent", plain, fast).weight)


@pytest.mark.parametrize(
    "make",
    [
        lambda: UnsirSettings(noise_rate=0.0),
        lambda: UnsirSettings(noise_steps=0),
        lambda: UnsirSettings(noise_penalty=-1.0),
        lambda: ScrubRewindSettings(n_ascents=0),
        lambda: ScrubRewindSettings(entropy_weight=-1.0),
        lambda: ScrubRewindSettings(divergence_weight=-1.0),
        lambda: ScrubRewindSettings(temperature=0.0),
        lambda: ScrubRewindSettings(forget_error=1.5),
        lambda: R2dSettings(share=1.0),
        lambda: SisaSettings(n_slices=0),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(InputError, match="must be "):
        make()


def test_methods_that_train_anew_may_change_images_as_training_does() -> None:
    assert R2dSettings(augment="flip_crop").augment == "flip_crop"
    with pytest.raises(InputError, match="augment must be 'none' in unlearning"):
        UnsirSettings(augment="flip_crop")
