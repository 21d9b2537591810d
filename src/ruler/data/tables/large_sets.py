"""The two large tables of the diagnostic study, apart from the ten of the primary study."""

from ruler.core.registry import Registry
from ruler.data.tables.sets import TabularSet

# fmt: off
_COVER_TYPES = (
    "Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow", "Aspen", "Douglas-fir", "Krummholz",
)
# fmt: on

_SETS = [
    TabularSet(
        key="covertype",
        title="Covertype",
        n_rows=581012,
        n_features=54,
        content_hash="d9295bceb7897bae22a36bb0da641ae98ab937ee6211aba140cc7eda72dec1c5",
        classes=_COVER_TYPES,
        class_of=lambda label: int(label) - 1,
        home="UCI (figshare copy)",
    ),
    TabularSet(
        key="higgs",
        title="Higgs (51,233 of the paper's 100,000 rows)",
        n_rows=51233,
        n_features=28,
        content_hash="9109a59f07c90a917cf5aa8c083a9ca80fea876fc65557447439c49a2b7d95bb",
        classes=("background", "signal"),
        class_of=lambda label: int(float(label)),
        openml_id=23512,
        note="51,233 genuine rows pooled from public subsets, where the paper samples 100,000",
        home_note="98,050 rows of OpenML 23512, where the paper samples 100,000 and this project measured 51,233",
        home_rows=98050,
    ),
]

LARGE_SETS: Registry[TabularSet] = Registry("dataset", {entry.key: entry for entry in _SETS})
