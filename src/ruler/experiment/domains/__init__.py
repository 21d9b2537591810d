"""Datasets of the diagnostic studies: what each is made of, before any of it is loaded."""

from dataclasses import dataclass
from typing import Literal

from ruler.core.registry import Registry
from ruler.data import PUBLISHED_SETS, TABULAR_SETS

Kind = Literal["table", "images", "faces", "texts"]


@dataclass(frozen=True)
class Domain:
    """A dataset beyond the ten tabular sets, and the models that the paper trains on it.

    Args:
        key: Name in code.
        kind: Which loader reads it.
        architectures: That are made for it.
        source: Key of the published set that it is made of.
        n_records: About how many training records it has, for the order of jobs.
        is_control: Only the original and the oracle are measured on it; no method is run.
    """

    key: str
    kind: Kind
    architectures: tuple[str, ...]
    n_records: int
    source: str = ""
    is_control: bool = False


_TABLE_MODELS = ("tabular_mlp", "residual_mlp", "ft_transformer")
_IMAGE_MODELS = ("small_cnn", "resnet18")

DOMAINS: Registry[Domain] = Registry(
    "dataset",
    {
        domain.key: domain
        for domain in (
            Domain("covertype", "table", _TABLE_MODELS, 80_000),
            Domain("higgs", "table", _TABLE_MODELS, 40_986),
            Domain("cifar10", "images", _IMAGE_MODELS, 10_000),
            Domain("svhn", "images", _IMAGE_MODELS, 10_000),
            Domain("cifar100", "images", _IMAGE_MODELS, 10_000),
            Domain("lfw", "faces", ("resnet18",), 3_675),
            Domain("mtsamples", "texts", ("bert_mlm",), 3_000),
            Domain("mtsamples_rows", "texts", ("bert_mlm",), 3_000, source="mtsamples", is_control=True),
        )
    },
)

DATASETS: Registry[object] = Registry("dataset", {**TABULAR_SETS, **DOMAINS})
"""Every dataset that some study can run on."""


def name_source(dataset: str) -> str:
    """Key of the published set behind a dataset.

    Example:
        >>> name_source("mtsamples_rows"), name_source("adult")
        ('mtsamples', 'adult')
    """
    source = DOMAINS[dataset].source if dataset in DOMAINS else ""
    return PUBLISHED_SETS[source or dataset].key
