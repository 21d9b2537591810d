"""The datasets of the diagnostic studies, and what jobs read: fetched and checked before any worker starts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ruler.core.registry import Registry
from ruler.data import FACE_SETS, PUBLISHED_SETS, TABULAR_SETS, check_gender, fetch_set, locate


@dataclass(frozen=True)
class Domain:
    """A dataset beyond the ten tabular sets, and the models that the paper trains on it.

    Args:
        key: Name in code.
        kind: Which loader reads it.
        architectures: That are made for it.
        n_records: About how many training records it has, for the order of jobs.
        source: Key of the published set that it is made of, where that is not its own.
        is_control: Only the original and the oracle are measured on it; no method is run.
    """

    key: str
    kind: Literal["table", "images", "faces", "texts"]
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


def holds_texts(dataset: str) -> bool:
    """Whether models of this dataset start from a pretrained language model.

    Example:
        >>> holds_texts("mtsamples"), holds_texts("adult")
        (True, False)
    """
    return dataset in DOMAINS and DOMAINS[dataset].kind == "texts"


def gather_inputs(datasets: Iterable[str], language_model: str | None = None) -> None:
    """Check the language model if texts are read, and download the datasets that are absent.

    Args:
        datasets: Keys of the datasets that are about to be read.
        language_model: Folder or hub name of the model for texts; None looks for one.

    Raises:
        DownloadError: Something is not here and cannot be fetched.
        FileFormatError: A folder that is not that of a masked language model.
        CheckpointError: A model whose weights do not fit, or that lacks some below its head.
        InputError: Faces without gender, which no home publishes.

    Example:
        >>> gather_inputs(["breast_cancer"])  # comes with scikit-learn
    """
    wanted = sorted(set(datasets))
    if any(map(holds_texts, wanted)):
        from ruler.models.bert_mlm import check_language_model

        check_language_model(language_model)
    for dataset in wanted:
        source = name_source(dataset)
        if source in FACE_SETS:
            check_gender(source)
        elif locate(PUBLISHED_SETS[source]).place == "to download":
            fetch_set(source, progress=True)
