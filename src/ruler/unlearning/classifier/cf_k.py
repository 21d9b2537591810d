"""CF-k, catastrophic forgetting of the last k layers (Goel et al., 2022): fine-tune them on the retain records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ruler.core.checks import check_number
from ruler.unlearning.method import ClassifierSettings, Method, Plan

if TYPE_CHECKING:
    from torch import nn

    from ruler.training.batches import Source


@dataclass(frozen=True)
class CfKSettings(ClassifierSettings):
    """Ten epochs on the retain records; all layers before the last k keep their weights.

    Args:
        n_layers: k: layers with a weight matrix, counted from the end, with the norms that follow them.
    """

    epochs: int = 10
    learning_rate: float = 0.01
    n_layers: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self.n_layers, "n_layers", minimum=1, is_whole=True)


def make_plan(student: "nn.Module", records: "Mapping[str, Source]", settings: CfKSettings) -> Plan:
    """CE(retain), over the weights of the last k layers."""
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import list_last_layers, list_parameters

    return Plan(cross_entropy, trained=list_parameters(student, list_last_layers(student, settings.n_layers)))


CF_K = Method(
    title="CF-k",
    colour="#55A868",
    settings=CfKSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), over the last k layers",
    source="Goel et al. 2022; DeepUnlearn",
    grid={"learning_rate": (1e-3, 0.01), "n_layers": (1, 2, 3)},
)
