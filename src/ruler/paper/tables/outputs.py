"""Tables 3 and 4: what the outputs show, over all datasets and dataset by dataset."""

from typing import TYPE_CHECKING

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.results import rows_of, split_by
from ruler.paper.tables.numbers import Number, summarise

if TYPE_CHECKING:
    import pandas as pd

OUTPUT_METRICS = ("mia", "forget_accuracy", "retain_accuracy", "test_accuracy")


def compute_table_3(results: "pd.DataFrame") -> list[Number]:
    """Mean and SD over all runs of the membership attack and of three accuracies, N = 100."""
    found = []
    for keys, runs in split_by(rows_of(results, "primary"), "forget_fraction", "method"):
        for metric in OUTPUT_METRICS:
            found += summarise(runs, metric, ["mean", "sd"], n_paper=100, study="primary", **keys)
    return found


def compute_table_4(results: "pd.DataFrame") -> list[Number]:
    """Mean of the membership attack on each dataset, the oracle beside the methods, N = 10."""
    rows = rows_of(results, "primary", (*APPROXIMATE_METHODS, "oracle"))
    found = []
    for keys, runs in split_by(rows, "forget_fraction", "dataset", "method"):
        found += summarise(runs, "mia", ["mean"], n_paper=10, study="primary", **keys)
    return found
