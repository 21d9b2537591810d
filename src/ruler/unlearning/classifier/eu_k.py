"""EU-k, exact unlearning of the last k layers (Goel et al., 2022): train them anew on the retain records."""

from dataclasses import dataclass

from ruler.core.errors import InputError
from ruler.unlearning.classifier.cf_k import CfKSettings
from ruler.unlearning.classifier.cf_k import make_plan as plan_cf_k
from ruler.unlearning.method import Method, Module, Plan, Records


@dataclass(frozen=True)
class EuKSettings(CfKSettings):
    """As CF-k, from weights that the seed draws."""


def make_plan(student: Module, records: Records, settings: EuKSettings) -> Plan:
    """CE(retain), over the weights of the last k layers, drawn anew."""
    from ruler.unlearning.classifier.records import list_last_layers

    modules = dict(student.named_modules())
    for name in list_last_layers(student, settings.n_layers):
        reset = getattr(modules[name], "reset_parameters", None) or getattr(modules[name], "_reset_parameters", None)
        if not callable(reset):
            raise InputError(
                f"the last {settings.n_layers} layers must have reset_parameters; got {name!r} without. Give fewer "
                "n_layers, or use cf_k."
            )
        reset()
    return plan_cf_k(student, records, settings)


EU_K = Method(
    title="EU-k",
    colour="#937860",
    settings=EuKSettings,
    reads=("retain",),
    make_plan=make_plan,
    kind="classifier",
    formula="CE(retain), over the last k layers, drawn anew",
    source="Goel et al. 2022; DeepUnlearn",
    grid={"learning_rate": (1e-3, 0.01), "n_layers": (1, 2, 3)},
)
