"""Datasets of the diagnostic studies: what each is made of, before any of it is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ruler.core.registry import Registry
from ruler.data import (
    FACE_SETS,
    IMAGE_SETS,
    LARGE_SETS,
    TABULAR_SETS,
    TEXT_SETS,
    fetch_faces,
    fetch_images,
    fetch_tabular,
    fetch_texts,
)

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

_SOURCES: dict[Kind, tuple[Any, Callable[..., object]]] = {
    "table": (LARGE_SETS, fetch_tabular),
    "images": (IMAGE_SETS, fetch_images),
    "faces": (FACE_SETS, fetch_faces),
    "texts": (TEXT_SETS, fetch_texts),
}


def find_source(dataset: str) -> tuple[Any, Callable[..., object]]:
    """The published set behind a dataset, and what downloads it.

    Example:
        >>> find_source("mtsamples_rows")[0].key
        'mtsamples'
    """
    if dataset in TABULAR_SETS:
        return TABULAR_SETS[dataset], fetch_tabular
    domain = DOMAINS[dataset]
    sets, fetch = _SOURCES[domain.kind]
    return sets[domain.source or dataset], fetch
