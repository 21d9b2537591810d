"""UNDIAL (Dong et al., 2024): distil from the original with its logit of the true token lowered."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, LanguageSettings, Method, Module, Objective, Tensor, not_negative


@dataclass(frozen=True)
class UndialSettings(LanguageSettings):
    """Distillation from an adjusted original, on the forget records alone.

    Args:
        beta: By how much the true token's logit is lowered.
    """

    learning_rate: float = 1e-4
    beta: float = not_negative(10.0)


def make_objective(original: Module, settings: UndialSettings) -> Objective:
    """Mean over forget tokens of the cross-entropy to softmax(logits_original - beta at the true token)."""
    import torch

    from ruler.training.steps import compute_logits
    from ruler.unlearning.distillation import freeze_copy
    from ruler.unlearning.language.losses import mean_over_asked, shift_true_logits

    teacher = freeze_copy(original)

    def objective(student: Module, forget: Batch) -> Tensor:
        inputs, labels = forget
        with torch.no_grad():
            target = shift_true_logits(compute_logits(teacher, inputs), labels, -settings.beta).softmax(-1)
        log_q = compute_logits(student, inputs).log_softmax(-1)
        return mean_over_asked(-(target * log_q).sum(-1), labels)

    return objective


UNDIAL = Method(
    title="UNDIAL",
    colour="#CC6677",
    settings=UndialSettings,
    reads=("forget",),
    make_objective=make_objective,
    kind="language",
    formula="CE(softmax(logits_original - beta at the true token), forget)",
    source="Dong et al. 2024; open-unlearning",
    grid={"learning_rate": (5e-5, 1e-4, 3e-4)},
)
