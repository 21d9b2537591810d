"""What jobs read, datasets and a pretrained model: fetched and checked once, before any worker starts."""

from collections.abc import Iterable

from ruler.data import DATASETS, FaceSet, check_gender, fetch_dataset, locate


def gather_inputs(datasets: Iterable[str], language_model: str | None = None) -> None:
    """Check the language model where texts are read, and download the datasets that are absent.

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
        entry = DATASETS[dataset]
        if isinstance(entry, FaceSet):
            check_gender(entry)
        elif locate(entry).place == "to download":
            fetch_dataset(dataset, progress=True)


def holds_texts(dataset: str) -> bool:
    """Whether models of this dataset start from a pretrained language model.

    Example:
        >>> holds_texts("mtsamples"), holds_texts("adult")
        (True, False)
    """
    return DATASETS[dataset].kind == "text"


def name_language_model(name: str | None = None) -> str:
    """What the rows of a run with this language model say of it.

    Raises:
        FileFormatError: A folder without a model.
        DownloadError: The model is neither here nor can it be fetched.
    """
    from ruler.models.bert_mlm import resolve_language_model

    return resolve_language_model(name).description
