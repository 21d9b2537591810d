"""LFSSD (Foster et al., 2024): SSD whose importance needs no labels."""

from dataclasses import dataclass

from ruler.unlearning.classifier.ssd import SsdSettings, dampen
from ruler.unlearning.method import Method, Module, Records


@dataclass(frozen=True)
class LfssdSettings(SsdSettings):
    """As SSD. For forget sets drawn at random its public code takes a threshold of 3.5."""


def edit(student: Module, records: Records, settings: LfssdSettings) -> None:
    """As SSD, F the mean abs(gradient) of a record's squared output norm."""
    dampen(student, records, settings, lambda logits, labels: logits.square().sum(), power=1)


LFSSD = Method(
    title="LFSSD",
    colour="#8172B3",
    settings=LfssdSettings,
    reads=("retain", "forget"),
    edit=edit,
    kind="classifier",
    formula="as SSD, F mean abs(gradient of the squared output norm)",
    source="Foster et al. 2024; SUPREME",
    grid={"threshold": (3.5, 10.0, 50.0), "strength": (0.1, 1.0)},
)
