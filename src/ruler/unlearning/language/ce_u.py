"""CE-U (Yang, 2025): follow the model's own distribution with the true token taken out."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, LanguageSettings, Method, Module, Objective, Tensor, count


@dataclass(frozen=True)
class CeUSettings(LanguageSettings):
    """Self-distillation without the true token, on the forget records alone.

    Args:
        n_skipped: Tokens at the start of each completion that are left as they are.
    """

    n_skipped: int = count(1, least=0)


def make_objective(original: Module, settings: CeUSettings) -> Objective:
    """Mean over forget tokens of the cross-entropy to the student's own softmax, true token at minus infinity."""
    from ruler.training.sentences import NOT_ASKED
    from ruler.training.steps import compute_logits
    from ruler.unlearning.language.losses import mean_over_asked, shift_true_logits

    def objective(student: Module, forget: Batch) -> Tensor:
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
