"""What jobs read, datasets and a pretrained model: fetched and checked once, before any worker starts."""

from collections.abc import Iterable

from ruler.data import PUBLISHED_SETS, fetch_set, locate
from ruler.experiment.domains import DOMAINS, check_home, name_source


def gather_inputs(datasets: Iterable[str], language_model: str | None = None) -> None:
    """Check the language model where texts are read, and download the datasets that are absent.

    Args:
        datasets: Keys of the datasets that are about to be read.
        language_model: Folder or hub name of the model for texts; None looks for one.

    Raises:
        DownloadError: Something is not here and cannot be fetched.
        FileFormatError: A folder that is not that of a masked language model.
        CheckpointError: A model whose weights do not fit, or that lacks some below its head.

    Example:
        >>> gather_inputs(["breast_cancer"])  # comes with scikit-learn
    """
    wanted = sorted(set(datasets))
    if any(dataset in DOMAINS and DOMAINS[dataset].kind == "texts" for dataset in wanted):
        from ruler.models.bert_mlm import check_language_model

        check_language_model(language_model)
    for dataset in wanted:
        source = name_source(dataset)
        if locate(PUBLISHED_SETS[source]).place == "to download":
            check_home(dataset)
            fetch_set(source, progress=True)
