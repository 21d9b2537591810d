"""WoodFisher influence (Jia et al., 2023): one step of the weights against the influence of the forget records."""

from dataclasses import dataclass

from ruler.core.determinism import kept_modes
from ruler.unlearning.method import Method, Module, Records, UnlearningSettings, count, positive


@dataclass(frozen=True)
class WoodFisherSettings(UnlearningSettings):
    """One step without training: epochs, rate and batch size are not used; the seed draws the sample.

    Args:
        strength: The step's factor a; its authors tune it for each model.
        n_records: Retain records, at most, from which the Fisher matrix is estimated.
        damping: Added to its diagonal; ours.
        n_steps: Of conjugate gradients, at most; ours. The public code follows an approximate recursion.
    """

    strength: float = positive(1.0)
    n_records: int = count(1000)
    damping: float = positive(0.01)
    n_steps: int = count(25)


def edit(student: Module, records: Records, settings: WoodFisherSettings) -> None:
    """Weights + a (F + damping)^-1 (n_f / n) (g_f - g_r), g mean gradients of CE, F their mean square over records."""
    import torch

    from ruler.unlearning.classifier.curvature import multiply_by_fisher, solve
    from ruler.unlearning.classifier.records import gather_pair, sum_loss_gradients

    forget, retain = (gather_pair(records[side], student) for side in ("forget", "retain"))
    n_forget, n_retain = len(forget[1]), len(retain[1])
    of_forget, of_retain = (sum_loss_gradients(student, pair) for pair in (forget, retain))
    means = [(of_forget[name] / n_forget - of_retain[name] / n_retain).flatten() for name in of_forget]
    pull = n_forget / (n_forget + n_retain) * torch.cat(means)
    few = torch.randperm(n_retain)[: settings.n_records].to(retain[1].device)
    with kept_modes(student):
        fisher = multiply_by_fisher(student, retain[0][few], retain[1][few])
        step = solve(lambda x: fisher(x) + settings.damping * x, pull, settings.n_steps)
    values = [value for name, value in student.named_parameters() if name in of_forget]
    with torch.no_grad():
        for value, part in zip(values, torch.split(step, [value.numel() for value in values]), strict=True):
            value.add_(settings.strength * part.reshape(value.shape))


WOODFISHER = Method(
    title="WoodFisher",
    short="WF",
    colour="#8C510A",
    settings=WoodFisherSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="weights + a (F + damping)^-1 (n_f / n) (g_f - g_r), g mean gradients of CE, F their mean square",
    source="Jia et al. 2023; Unlearn-Sparse",
    grid={"strength": (1.0, 5.0, 20.0)},
)
