"""Short retraining: start where the forget records left no trace, and train on the retain records in a short schedule.

Fresh weights never saw the forget records, so the student is clean by construction; what a short schedule costs is
accuracy. Checkpoints of the original's own training may be given to start from: they keep more, but were trained on
the forget records. A student from a checkpoint is kept only if it treats the forget records like validation records,
which no model was trained on, by what tells them apart in the original, next to the fresh student; otherwise the next
one is tried, and at last the fresh student is taken. This is a test, not part of the loss: a model that is trained to
look clean would hide what it knows.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ruler.core.errors import InputError
from ruler.core.types import FloatArray
from ruler.training.settings import TrainingSettings
from ruler.unlearning.method import Method, Module, Plan, Records, Source, UnlearningSettings, follow, fraction

if TYPE_CHECKING:
    from ruler.stats.auc import Effect

_SEEN = 2.6
"""Standard errors from 1/2 at which an AUC counts as seen in the original, about 1% on both sides together."""

_SHARE = 0.15  # of the original's epochs: with what starting takes, below a fifth of its cost
_FASTER = {"sgd": 2.0}  # times the original's rate; other optimisers, which scale their steps, bear more
_FASTEST = 3.0


@dataclass(frozen=True)
class ShortRetrainingSettings(UnlearningSettings):
    """A fifth of the paper's epochs, in mini batches at one cycle of the rate, which rises to ten times the paper's.

    Args:
        has_dropout: Whether the student drops units in training, if its architecture does; a short training fits faster
            without.
        checkpoints: ``state_dict()`` of the original during its own training, in the order in which they are tried. A
            student that starts there follows a cosine instead of a cycle.
        validation: Records (X, y) that are like the forget records and that no model was trained on, to test students
            that start at a checkpoint. They must not be the held-out records of the audit.
        most_left: Share of the original's contrast between forget and validation records, in losses and in norms of
            the representations, that a student from a checkpoint may have.
    """

    learning_rate: float = 0.01
    batch_size: int | None = 64
    schedule: str = "one_cycle"
    has_dropout: bool = False
    checkpoints: tuple[Mapping[str, Any], ...] = field(default=(), repr=False, compare=False)
    validation: Any = field(default=None, repr=False, compare=False)
    most_left: float = fraction(0.1)
    may_augment: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checkpoints and self.validation is None:
            raise InputError(
                "validation must hold records that no model was trained on if checkpoints are given; got None. "
                "Checkpoints saw the forget records; only validation records can show that they are forgotten."
            )


def edit(student: Module, records: Records, settings: ShortRetrainingSettings) -> None:
    """CE(retain) from each checkpoint in turn, the first that treats forget like validation records; else from scratch.

    Raises:
        InputError: A checkpoint of another model.
    """
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.distillation import make_random_teacher

    def train(start: Mapping[str, Any], number: int, schedule: str) -> None:
        try:
            student.load_state_dict(start)
        except RuntimeError as error:
            raise InputError(f"checkpoints must fit the model; got another one's state_dict. {error}") from error
        chosen = replace(settings, schedule=schedule, seed=settings.seed + number)
        with _dropout(student, is_on=settings.has_dropout):
            follow(student, Plan(cross_entropy), {"retain": records["retain"]}, chosen)

    original = score_records(student, records["forget"], settings.validation) if settings.checkpoints else {}
    train(make_random_teacher(student, settings.seed).state_dict(), 0, settings.schedule)
    if not original:
        return
    fresh = copy.deepcopy(student.state_dict())
    reference = score_records(student, records["forget"], settings.validation)
    found = contrast_scores(original, reference)
    before = {name: one for name, one in found.items() if abs(one.statistic) > _SEEN}
    for number, checkpoint in enumerate(settings.checkpoints if before else ()):  # what is not seen cannot be cleared
        train(checkpoint, 1 + number, "cosine")
        after = contrast_scores(score_records(student, records["forget"], settings.validation), reference)
        if max((after[name].value - 0.5) / (one.value - 0.5) for name, one in before.items()) <= settings.most_left:
            return
    student.load_state_dict(fresh)


def shorten_training(training: TrainingSettings) -> TrainingSettings:
    """The schedule of a short retraining: 15% of an original's epochs, one cycle of 3 times its rate (SGD: twice).

    Example:
        >>> short = shorten_training(TrainingSettings(epochs=20, learning_rate=0.05, optimizer="sgd"))
        >>> short.epochs, short.learning_rate, short.schedule
        (3, 0.1, 'one_cycle')
    """
    rate = _FASTER.get(training.optimizer, _FASTEST) * training.learning_rate
    return replace(training, epochs=max(1, round(_SHARE * training.epochs)), learning_rate=rate, schedule="one_cycle")


Scores = Mapping[str, tuple[FloatArray, FloatArray]]
"""By name, one number per forget and one per validation record."""


def score_records(model: Module, forget: Source, validation: Source) -> Scores:
    """Place of each record's loss among all of them, and logarithm of the norm of what the last linear layer reads."""
    from ruler.stats.auc import ScorePool

    sides = [_read(model, source) for source in (forget, validation)]
    n_forget = len(sides[0]["loss"])
    places = ScorePool.of(np.concatenate([side["loss"] for side in sides])).rank()
    scores: dict[str, tuple[FloatArray, FloatArray]] = {"loss": (places[:n_forget], places[n_forget:])}
    if "norm" in sides[0]:
        own, other = (np.log(np.maximum(side["norm"], 1e-12)) for side in sides)
        scores["norm"] = own, other
    return scores


def contrast_scores(scores: Scores, reference: Scores) -> "dict[str, Effect]":
    """AUC of forget against validation records, by their scores less those in a model that never saw either.

    Example:
        >>> import numpy as np
        >>> clean = {"loss": (np.array([1.0, 4.0]), np.array([2.0, 3.0]))}
        >>> contrast_scores({"loss": (np.array([1.0, 2.0]), np.array([3.0, 4.0]))}, clean)["loss"].value
        0.0
    """
    from ruler.stats.auc import measure_effect

    return {
        name: measure_effect(*(now - clean for now, clean in zip(scores[name], reference[name], strict=True)))
        for name in scores
    }


def _read(model: Module, source: Source) -> dict[str, FloatArray]:
    """Loss and norm of each record, in eval mode; no norm where the model has no linear layer."""
    from torch.nn.functional import cross_entropy

    from ruler.unlearning.classifier.records import gather_pair, read_head

    inputs, labels = gather_pair(source, model)
    _, features, logits = read_head(model, inputs)
    scores = {"loss": cross_entropy(logits.double(), labels, reduction="none")}
    if features is not None:
        scores["norm"] = features.double().flatten(1).norm(dim=1)
    return {name: values.cpu().numpy() for name, values in scores.items()}


@contextmanager
def _dropout(model: Module, *, is_on: bool) -> Iterator[None]:
    """A context in which dropout drops nothing, unless it shall."""
    from torch import nn

    with ExitStack() as stack:
        for module in () if is_on else model.modules():
            if isinstance(module, nn.Dropout):
                stack.callback(setattr, module, "p", module.p)
                module.p = 0.0
        yield


SHORT_RETRAINING = Method(
    title="Short retraining",
    short="SR",
    colour="#0B5D3B",
    settings=ShortRetrainingSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="CE(retain) in a short schedule, from fresh weights or the first checkpoint that forgets",
    source="ours",
    grid={"learning_rate": (3e-3, 0.01, 0.03), "epochs": (5, 10)},
    trains_anew=True,
)
