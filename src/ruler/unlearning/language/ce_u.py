"""CE-U (Yang, 2025): follow the model's own distribution with the true token taken out."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.checks import check_number
from ruler.unlearning.method import LanguageSettings, Method

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ruler.training.batches import Batch
    from ruler.training.steps import Objective


@dataclass(frozen=True)
class CeUSettings(LanguageSettings):
    """Self-distillation without the true token, on the forget records alone.

    Args:
        n_skipped: Tokens at the start of each completion that are left as they are.
    """

    n_skipped: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.n_skipped, "n_skipped", minimum=0, is_whole=True)


def make_objective(original: "nn.Module", settings: CeUSettings) -> "Objective":
    """Mean over forget tokens of the cross-entropy to the student's own softmax, true token at minus infinity."""
    from ruler.training.sentences import NOT_ASKED
    from ruler.training.steps import compute_logits
    from ruler.unlearning.language.losses import mean_over_asked, shift_true_logits

    def objective(student: "nn.Module", forget: "Batch") -> "torch.Tensor":
        inputs, labels = forget
        logits = compute_logits(student, inputs)
        target = shift_true_logits(logits, labels, -float("inf")).softmax(-1)
        is_skipped = (labels != NOT_ASKED).cumsum(1) <= settings.n_skipped
        by_token = -(target * logits.log_softmax(-1)).sum(-1)
        return mean_over_asked(by_token, labels.masked_fill(is_skipped, NOT_ASKED))

    return objective


CE_U = Method(
    title="CE-U",
    colour="#DDCC77",
    settings=CeUSettings,
    reads=("forget",),
    make_objective=make_objective,
    kind="language",
    formula="CE(own softmax without the true token, forget)",
    source="Yang 2025; open-unlearning",
    grid={"learning_rate": (5e-6, 1e-5, 2e-5)},
)
