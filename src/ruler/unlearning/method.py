"""The shape of an unlearning method. Needs no torch, so that tables and study files can name methods without it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from ruler.core.errors import InputError
from ruler.training.settings import TrainingSettings
from ruler.training.settings import count as count
from ruler.training.settings import fraction as fraction
from ruler.training.settings import not_negative as not_negative
from ruler.training.settings import positive as positive

if TYPE_CHECKING:
    from torch import Tensor as Tensor
    from torch.nn import Module as Module

    from ruler.training.batches import Batch as Batch
    from ruler.training.batches import Source as Source
    from ruler.training.steps import Objective as Objective
else:  # these load torch, which naming a method does not
    Batch = Module = Objective = Source = Tensor = Any

Pair = tuple[Tensor, Tensor]
"""Inputs and labels."""
Records = Mapping[str, Source]
"""Records by side."""
Side = Literal["retain", "forget"]
Kind = Literal["any", "classifier", "language", "preferences"]


@dataclass(frozen=True)
class UnlearningSettings(TrainingSettings):
    """How an unlearning method is run: the paper's rate, epochs and seed. Each method has a subclass of its own.

    Args:
        seed: Of dropout and of the mini-batch order.
    """

    epochs: int = 10
    learning_rate: float = 5e-4
    seed: int = count(100, least=0)
    may_augment: ClassVar[bool] = False
    """Whether images may be changed as in training, as methods that train anew do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.augment != "none" and not self.may_augment:
            raise InputError(
                f"augment must be 'none' in unlearning; got {self.augment!r}. Methods see records as they are."
            )

    @property
    def needs_validation(self) -> bool:
        """Whether the method waits for records (X, y) in a setting ``validation``, as a comparison then draws them."""
        return False


@dataclass(frozen=True)
class ClassifierSettings(UnlearningSettings):
    """How methods of others for classifiers are run: SGD in mini batches, as their public code does it."""

    batch_size: int | None = 128
    optimizer: str = "sgd"
    momentum: float = 0.9


@dataclass(frozen=True)
class LanguageSettings(UnlearningSettings):
    """How methods for language models are run: the rate, epochs and batch of their public code (open-unlearning)."""

    learning_rate: float = 1e-5
    batch_size: int | None = 32
    weight_decay: float = 0.01
    optimizer: str = "adamw"


S = TypeVar("S", bound=UnlearningSettings)


@dataclass(frozen=True)
class Terms:
    """A loss that is a weighted sum of cross-entropies and divergences, which the ensemble can run.

    Args:
        retain: Weights of the retain records' cross-entropy and of their divergence from the teacher.
        forget: The same for the forget records.
        teacher: ``"original"`` for each member's own original, or the seed of a random teacher; None without one.
        temperature: Divides the logits of student and teacher before they are compared.
    """

    retain: tuple[float, float] = (0.0, 0.0)
    forget: tuple[float, float] = (0.0, 0.0)
    teacher: Literal["original"] | int | None = None
    temperature: float = 1.0


@dataclass(frozen=True)
class Plan:
    """What a method does that needs more than a loss.

    Args:
        objective: Of the student and one batch per entry of the method's ``reads``.
        records: What to read instead of the given records, by side; None for those.
        trained: Names of the parameters that are trained; None for all that the model trains.
        after_step: Called with the student after every step of the optimiser.
        on_epoch: Called with (epoch from 1, mean loss) after each epoch. What it changes for the objective must be a
            tensor that is filled in place, since steps may be captured.
        settings: Epochs, rate, seed and batches of this stage; None for the method's.
    """

    objective: Objective
    records: Records | None = None
    trained: tuple[str, ...] | None = None
    after_step: Callable[[Module], None] | None = None
    on_epoch: Callable[[int, float], None] | None = None
    settings: UnlearningSettings | None = None


@dataclass(frozen=True)
class Method(Generic[S]):
    """An unlearning method with all that other rooms need to know of it.

    Your own package adds one by an entry point of the group ``ruler.methods``, or calls
    ``METHODS.register(name, method)``. ``ruler.testing.methods.check_method`` checks that it keeps the rules.

    Args:
        title: Name in print.
        settings: The method's settings class; made without arguments it gives the defaults.
        reads: Which records it reads, in the order of the forward passes; an epoch is one pass over the first.
        make_objective: (original model, settings) -> objective, a function of the student and of one batch per entry of
            ``reads`` that returns the loss to minimise.
        make_plan: (student, records by side, settings) -> `Plan`, for a loss that needs other labels, fewer parameters
            or the time; may change the student, which is still the original's copy, before it is trained. A method of
            several stages yields one plan after the other, each with a fresh optimiser, and sees what became of the
            student in between.
        edit: (student, records by side, settings) -> None, for a method that minimises no loss: changes the student in
            place. Give exactly one of the three.
        terms: The same loss as weights, for many small models at once; None if it is no such sum.
        short: Abbreviation for an axis; by default the title.
        colour: In figures.
        kind: What records it is for: ``"classifier"`` for labelled ones, ``"language"`` for those with a label per
            token (``Completions``, ``MaskedSentences``), ``"preferences"`` for ``Preferences`` to forget, or ``"any"``.
        formula: The loss in one line, for tables.
        source: Who proposed it, and whose settings are the defaults.
        grid: Settings that are worth trying, by name: every combination is one choice, to be made on retain records
            alone. Empty where nothing is to be chosen.
        trains_anew: Whether it trains as the original was trained: comparisons give it the settings of that training
            (short retraining: for fewer epochs, at a larger rate).

    Example:
        >>> from dataclasses import replace
        >>> from ruler.unlearning import METHODS
        >>> mine = replace(METHODS["fine_tuning"], title="My tuning", short="MT")
        >>> mine.reads, mine.short
        (('retain',), 'MT')
    """

    title: str
    settings: type[S]
    reads: tuple[Side, ...]
    make_objective: Callable[[Module, S], Objective] | None = None
    edit: Callable[[Module, Records, S], None] | None = None
    make_plan: Callable[[Module, Records, S], Plan | Iterator[Plan]] | None = None
    terms: Callable[[S], Terms] | None = None
    short: str = ""
    colour: str = "#444444"
    kind: Kind = "any"
    formula: str = ""
    source: str = ""
    grid: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    trains_anew: bool = False

    def __post_init__(self) -> None:
        if sum(way is not None for way in (self.make_objective, self.edit, self.make_plan)) != 1:
            raise InputError(
                f"exactly one of make_objective, make_plan and edit must be given; got {self.title!r} otherwise."
            )
        if not self.reads or len(set(self.reads)) != len(self.reads) or not {"retain", "forget"}.issuperset(self.reads):
            raise InputError(f"reads must name 'retain', 'forget' or both, each once; got {self.reads!r}.")
        if not (isinstance(self.settings, type) and issubclass(self.settings, UnlearningSettings)):
            raise InputError(
                f"settings must be a subclass of UnlearningSettings; got {self.settings!r}. Give the class itself."
            )
        object.__setattr__(self, "short", self.short or self.title)

    def list_choices(self, **changes: Any) -> tuple[S, ...]:
        """The settings of every combination of ``grid``, with the given ones changed in all of them.

        Example:
            >>> from ruler.unlearning import METHODS
            >>> [choice.learning_rate for choice in METHODS["npo"].list_choices(epochs=5)]
            [1e-05, 2e-05, 5e-05]
        """
        names = list(self.grid)
        return tuple(
            self.settings(**{**dict(zip(names, values, strict=True)), **changes})
            for values in product(*self.grid.values())
        )

    def list_plans(self, original: Module, student: Module, records: Records, settings: S) -> Iterator[Plan]:
        """Its stages, each made when the one before it is over; none of a method that edits the student itself."""
        if self.make_objective is not None:
            yield Plan(self.make_objective(original, settings))
        elif self.make_plan is not None:
            found = self.make_plan(student, records, settings)
            yield from [found] if isinstance(found, Plan) else found

    def check_settings(self, settings: UnlearningSettings | None) -> S:
        """The settings if they are this method's; None gives the defaults.

        Raises:
            InputError: Settings of another method.
        """
        chosen = self.settings() if settings is None else settings
        if type(chosen) is not self.settings:
            name = self.settings.__name__
            raise InputError(
                f"settings must be {name} for {self.title}; got {type(chosen).__name__}. "
                f"Make them with {self.settings.__module__}.{name}(...)."
            )
        return chosen


def follow(
    student: Module,
    plan: Plan,
    records: Records,
    settings: UnlearningSettings,
    *,
    progress: bool = False,
) -> None:
    """Train the student by a plan, or by one stage of several; weights that are not to be trained are frozen meanwhile.

    Args:
        student: Changed in place.
        plan: What the method's ``make_plan`` gave, or its objective in a `Plan`.
        records: By side; a plan's own records come first.
        settings: Of the method; those of the plan come first. Where batch norm would see a single record in the last
            mini batch of an epoch, which it cannot be trained on, batches are larger by as little as prevents that.
        progress: Show a bar, if stderr is a terminal.
    """
    from ruler.training.loop import optimize  # needs torch, which naming a method does not

    records, chosen = plan.records or records, plan.settings or settings
    if chosen.batch_size is not None:
        chosen = replace(chosen, batch_size=_fit_batches(chosen.batch_size, student, records))
    frozen = [
        value
        for name, value in student.named_parameters()
        if value.requires_grad and plan.trained is not None and name not in plan.trained
    ]
    for value in frozen:
        value.requires_grad_(False)
    optimize(
        student,
        plan.objective,
        records,
        chosen,
        seed=chosen.seed,
        progress=progress,
        on_epoch=plan.on_epoch,
        after_step=plan.after_step,
    )
    for value in frozen:
        value.requires_grad_(True)


def _fit_batches(size: int, student: Module, records: Records) -> int:
    """The batch size, or the next one that leaves batch norm no mini batch of a single record."""
    from torch import nn
    from torch.utils.data import DataLoader

    if size == 1 or not any(
        isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for module in student.modules()
    ):
        return size
    sources: list[Any] = [source for source in records.values() if not isinstance(source, DataLoader)]
    counts = [len(source[1] if isinstance(source, tuple | list) else source) for source in sources]
    while any(n % size == 1 for n in counts if n > 1):
        size += 1
    return size
