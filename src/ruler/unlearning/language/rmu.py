"""RMU, representation misdirection (Li et al., 2024): push the forget records' hidden states to one random direction.

The loss reads one block. Gradients reach that block and the two before it, all of their weights, and nothing else: the
authors train one matrix in each of the same three blocks, others everything up to the block.
"""

from dataclasses import dataclass
from typing import Any

from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.unlearning.language.gradient_difference import GradientDifferenceSettings
from ruler.unlearning.method import Batch, Method, Module, Objective, Tensor, count, not_negative


@dataclass(frozen=True)
class RmuSettings(GradientDifferenceSettings):
    """Misdirection at one block. The seed decides the direction too.

    Args:
        layer: Number of the block, from 0; None takes a quarter of the depth, such as 7 of 30.
        n_trained: Blocks that are trained, the last being this one; at least as many as there are trains all before.
        strength: Length c of the direction that the forget records are pushed to.
    """

    layer: int | None = None
    n_trained: int = count(3)
    strength: float = not_negative(2.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layer is not None:
            check_number(self.layer, "layer", minimum=0, is_whole=True)


def make_objective(original: Module, settings: RmuSettings) -> Objective:
    """MSE(h(forget), c u) + w MSE(h(retain), h_original(retain)), means over tokens and units of block h."""
    import torch

    from ruler.training.batches import device_of
    from ruler.unlearning.distillation import freeze_copy
    from ruler.unlearning.language.losses import find_blocks, mean_over_asked, read_hidden

    n_blocks = len(find_blocks(original))
    layer = n_blocks // 4 if settings.layer is None else settings.layer
    if layer >= n_blocks:
        raise InputError(f"layer must be below the model's {n_blocks} blocks; got {layer}.")
    first = max(0, layer - settings.n_trained + 1)
    config: Any = getattr(original, "config", None)
    width = getattr(config, "hidden_size", None)
    if width is None:
        raise InputError(f"model must say its width as config.hidden_size; got {type(original).__name__}.")
    draw = torch.rand(width, generator=torch.Generator().manual_seed(settings.seed))
    direction = (settings.strength * draw / draw.norm()).to(device_of(original))
    reference = freeze_copy(original)

    def measure(hidden: Tensor, target: Tensor, labels: Tensor) -> Tensor:
        return mean_over_asked((hidden - target).square().mean(-1), labels)

    def objective(student: Module, forget: Batch, retain: Batch) -> Tensor:
        with torch.no_grad():
            before = read_hidden(reference, retain[0], layer)
        pushed = measure(read_hidden(student, forget[0], layer, first), direction, forget[1])
        kept = measure(read_hidden(student, retain[0], layer, first), before, retain[1])
        return pushed + settings.retain_weight * kept

    return objective


RMU = Method(
    title="RMU",
    colour="#AA4499",
    settings=RmuSettings,
    reads=("forget", "retain"),
    make_objective=make_objective,
    kind="language",
    formula="MSE(h(forget), c u) + MSE(h(retain), h_original(retain)), h one block, u a random direction",
    source="Li et al. 2024; open-unlearning",
    grid={"learning_rate": (1e-5, 5e-5), "strength": (2.0, 10.0)},
)
