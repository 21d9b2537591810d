"""JiT, just in time unlearning (Foster et al., 2024): make the output around each forget record as flat as possible."""

from dataclasses import dataclass

from ruler.unlearning.method import Batch, ClassifierSettings, Method, Module, Objective, Tensor, count, positive


@dataclass(frozen=True)
class JitSettings(ClassifierSettings):
    """One epoch on the forget records; no other records and no labels are needed.

    Args:
        noise: Standard deviation of the noise that is added to the inputs.
        n_draws: Of noise per record and step.
    """

    epochs: int = 1
    learning_rate: float = 1e-3
    noise: float = positive(0.1)
    n_draws: int = count(10)


def make_objective(original: Module, settings: JitSettings) -> Objective:
    """Mean over forget records and draws of norm(f(x) - f(x + e)) / norm(e), e Gaussian."""
    import torch

    from ruler.training.steps import compute_logits

    def objective(student: Module, forget: Batch) -> Tensor:
        inputs = forget[0]
        n, shape = len(inputs), (settings.n_draws, *inputs.shape)
        noise = settings.noise * torch.randn(shape, dtype=inputs.dtype, device=inputs.device)
        outputs = compute_logits(student, torch.cat([inputs, (inputs + noise).flatten(0, 1)]))
        moved = outputs[n:].reshape(settings.n_draws, n, -1) - outputs[:n]
        slopes: torch.Tensor = moved.norm(dim=-1) / noise.flatten(2).norm(dim=-1)
        return slopes.mean()

    return objective


JIT = Method(
    title="JiT",
    colour="#CCB974",
    settings=JitSettings,
    reads=("forget",),
    make_objective=make_objective,
    kind="classifier",
    formula="norm(f(x) - f(x + e)) / norm(e) on forget, e Gaussian",
    source="Foster et al. 2024; SUPREME",
    grid={"learning_rate": (3e-4, 1e-3, 3e-3), "noise": (0.1, 0.5)},
)
