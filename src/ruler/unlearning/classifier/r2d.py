"""R2D, rewind to delete (Mu and Klabjan, 2024): back to an earlier checkpoint, then train on the retain records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ruler.core.errors import InputError
from ruler.unlearning.classifier.retrain import RetrainSettings
from ruler.unlearning.method import Method, Module, Plan, Records, fraction


@dataclass(frozen=True)
class R2dSettings(RetrainSettings):
    """Give the settings that the original was trained with.

    Args:
        share: Of the training's epochs, those that are rewound and then repeated on the retain records.
        checkpoint: ``state_dict()`` of the original before these epochs. Without one, the epochs before are trained
            here, on the forget and the retain records, from weights that the seed draws.
    """

    share: float = fraction(0.5)
    checkpoint: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.checkpoint is not None and not isinstance(self.checkpoint, Mapping):
            raise InputError(
                f"checkpoint must be a model's state_dict(); got {type(self.checkpoint).__name__}. Load the file first."
            )

    @property
    def n_rewound(self) -> int:
        """Epochs that are rewound, at least one."""
        return max(1, round(self.share * self.epochs))


def make_plan(student: Module, records: Records, settings: R2dSettings) -> Iterator[Plan]:
    """CE(retain) for the epochs that are rewound, from the weights before them."""
    import torch

    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import gather_pair
    from ruler.unlearning.distillation import make_random_teacher

    n_before = settings.epochs - settings.n_rewound
    if settings.checkpoint is not None:
        try:
            student.load_state_dict(settings.checkpoint)
        except RuntimeError as error:
            raise InputError(f"checkpoint must fit the model; got another one's state_dict. {error}") from error
    else:
        student.load_state_dict(make_random_teacher(student, settings.seed).state_dict())
        if n_before:
            forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
            both = torch.cat([forget[0], retain[0]]), torch.cat([forget[1], retain[1]])
            yield Plan(cross_entropy, {"data": both}, settings=replace(settings, epochs=n_before))
    after = replace(settings, epochs=settings.n_rewound, seed=settings.seed + 1)
    yield Plan(cross_entropy, {"retain": records["retain"]}, settings=after)


R2D = Method(
    title="R2D",
    colour="#B8860B",
    settings=R2dSettings,
    reads=("retain", "forget"),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), from an earlier checkpoint of the original's training",
    source="Mu and Klabjan 2024",
    grid={"share": (0.25, 0.5, 0.75)},
    trains_anew=True,
)
