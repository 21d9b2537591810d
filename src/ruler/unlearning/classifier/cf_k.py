"""CF-k, catastrophic forgetting of the last k layers (Goel et al., 2022): fine-tune them on the retain records."""

from dataclasses import dataclass

from ruler.unlearning.method import ClassifierSettings, Method, Module, Plan, Records, count


@dataclass(frozen=True)
class CfKSettings(ClassifierSettings):
    """Ten epochs on the retain records; all layers before the last k keep their weights.

    Args:
        n_layers: k: layers with a weight matrix, counted from the end, with the norms that follow them.
    """

    learning_rate: float = 0.01
    n_layers: int = count(1)


def make_plan(student: Module, records: Records, settings: CfKSettings) -> Plan:
    """CE(retain), over the weights of the last k layers."""
    from ruler.training.steps import cross_entropy
    from ruler.unlearning.classifier.records import list_last_layers

    layers = set(list_last_layers(student, settings.n_layers))
    trained = tuple(name for name, _ in student.named_parameters() if name.rpartition(".")[0] in layers)
    return Plan(cross_entropy, trained=trained)


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
