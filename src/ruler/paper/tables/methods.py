"""Section 5.3: every method against every other on four metrics, 24 tests corrected as one family."""

from typing import TYPE_CHECKING

from ruler.experiment.settings import APPROXIMATE_METHODS
from ruler.paper.results import average_seeds, rows_of
from ruler.paper.tables.numbers import Number
from ruler.stats import compare_methods

if TYPE_CHECKING:
    import pandas as pd

METRICS = ("m2", "m4", "mia", "retain_accuracy")
SOURCE = "section 5.3"


def compute_method_comparisons(results: "pd.DataFrame") -> list[Number]:
    """Differences of dataset means over all fractions and seeds, with p before and after correction."""
    rows = rows_of(results, "primary")
    means = {metric: average_seeds(rows, metric, "method", "dataset").unstack("method").dropna() for metric in METRICS}
    scores = {
        metric: {method: table[method] for method in APPROXIMATE_METHODS if method in table}
        for metric, table in means.items()
    }
    scores = {metric: methods for metric, methods in scores.items() if len(methods) > 1 and len(means[metric])}
    found = []
    # The paper's 0.046 is the normal approximation's: see compare_methods.
    for test in compare_methods(scores, distribution="normal"):
        n = int(rows["method"].isin([test.first, test.second]).sum())
        values = {"difference": test.difference, "p_paired": test.p_value, "p_adjusted": test.p_adjusted}
        found += [
            Number(
                column=f"{test.metric}_{statistic}",
                value=value,
                n=n,
                n_paper=600,
                note=test.note if statistic != "difference" else "",
                study="primary",
                method=test.first,
                other_method=test.second,
                source=SOURCE,
            )
            for statistic, value in values.items()
        ]
    return found
