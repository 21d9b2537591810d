"""Short retraining: start where the forget records left no trace, and train on the retain records in a short schedule.

Fresh weights never saw the forget records, so the student is clean by construction; what a short schedule costs is
accuracy. Checkpoints of the original's own training may be given to start from: they keep more, but were trained on
the forget records. A student from a checkpoint is kept only if it treats the forget records like validation records,
which no model was trained on, by what tells them apart in the original; otherwise the next one is tried, and at last
fresh weights. This is a test, not part of the loss: a model that is trained to look clean would hide what it knows.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ruler.core.errors import InputError
from ruler.unlearning.method import Method, UnlearningSettings, check_share

if TYPE_CHECKING:
    from torch import nn

    from ruler.core.types import FloatArray
    from ruler.stats.auc import Effect
    from ruler.training.batches import Source

_SEEN = 2.6
"""Standard errors from 1/2 at which an AUC counts as seen in the original, about 1% on both sides together."""


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
    most_left: float = 0.25
    may_augment: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.most_left, "most_left")
        if self.checkpoints and self.validation is None:
            raise InputError(
                "validation must hold records that no model was trained on where checkpoints are given; got None. "
                "Checkpoints saw the forget records, and only such records can show that it is gone."
            )


def edit(student: "nn.Module", records: "Mapping[str, Source]", settings: ShortRetrainingSettings) -> None:
    """CE(retain) from each checkpoint in turn, until one treats forget like validation records; at last from scratch.

    Raises:
        InputError: A checkpoint of another model.
    """
    from ruler.training.loop import optimize
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.distillation import make_random_teacher

    retain = {"retain": records["retain"]}
    fresh = make_random_teacher(student, settings.seed).state_dict()
    found = contrast_records(student, records["forget"], settings.validation) if settings.checkpoints else {}
    before = {name: one for name, one in found.items() if abs(one.statistic) > _SEEN}
    for number, checkpoint in enumerate(settings.checkpoints if before else ()):  # what is not seen cannot be cleared
        try:
            student.load_state_dict(checkpoint)
        except RuntimeError as error:
            raise InputError(f"checkpoints must fit the model; got another one's state_dict. {error}") from error
        with _dropout(student, is_on=settings.has_dropout):
            optimize(student, cross_entropy, retain, replace(settings, schedule="cosine"), seed=settings.seed + number)
        after = contrast_records(student, records["forget"], settings.validation)
        shares = [(after[name].value - 0.5) / (one.value - 0.5) for name, one in before.items()]
        if max(shares) <= settings.most_left:
            return
    student.load_state_dict(fresh)
    with _dropout(student, is_on=settings.has_dropout):
        optimize(student, cross_entropy, retain, settings, seed=settings.seed)


def contrast_records(model: "nn.Module", forget: "Source", validation: "Source") -> "dict[str, Effect]":
    """AUC of forget against validation records: by loss, and by the norm of what the last linear layer reads.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(1, 2)
        >>> _ = model.load_state_dict({"weight": torch.tensor([[0.0], [1.0]]), "bias": torch.zeros(2)})
        >>> known, unknown = torch.tensor([[3.0], [2.0]]), torch.tensor([[1.0], [-1.0]])
        >>> found = contrast_records(model, (known, torch.ones(2).long()), (unknown, torch.ones(2).long()))
        >>> found["loss"].value, found["norm"].value
        (0.0, 1.0)
    """
    from ruler.stats.auc import measure_effect

    own, other = (_score(model, source) for source in (forget, validation))
    return {name: measure_effect(own[name], other[name]) for name in own}


def _score(model: "nn.Module", source: "Source") -> "dict[str, FloatArray]":
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    from ruler.training.steps import compute_logits
    from ruler.unlearning.classifier.records import gather_pair

    inputs, labels = gather_pair(source, model)
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    caught: list[torch.Tensor] = []
    was_training = [(module, module.training) for module in model.modules()]
    handles = [head.register_forward_pre_hook(lambda module, given: caught.append(given[0])) for head in heads[-1:]]
    model.eval()
    try:
        with torch.no_grad():
            logits = torch.cat([compute_logits(model, block) for block in torch.split(inputs, 1024)])
    finally:
        for handle in handles:
            handle.remove()
        for module, is_training in was_training:
            module.training = is_training
    scores = {"loss": cross_entropy(logits.double(), labels, reduction="none")}
    if caught:
        scores["norm"] = torch.cat(caught).double().flatten(1).norm(dim=1)
    return {name: values.cpu().numpy() for name, values in scores.items()}


@contextmanager
def _dropout(model: "nn.Module", *, is_on: bool) -> Iterator[None]:
    """A context in which dropout drops nothing, unless it shall."""
    from torch import nn

    layers = [] if is_on else [module for module in model.modules() if isinstance(module, nn.Dropout)]
    rates = [layer.p for layer in layers]
    for layer in layers:
        layer.p = 0.0
    try:
        yield
    finally:
        for layer, rate in zip(layers, rates, strict=True):
            layer.p = rate


SHORT_RETRAINING = Method(
    title="Short retraining",
    short="SR",
    colour="#117733",
    settings=ShortRetrainingSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="CE(retain) in a short schedule, from fresh weights or the first checkpoint that forgets",
    source="ours",
    grid={"learning_rate": (3e-3, 0.01, 0.03), "epochs": (5, 10)},
)
