"""The table and the figure of causal language models, from made-up rows."""

import math

import pandas as pd
import pytest
from tests.paper.language_rows import make_rows

from ruler.paper.figures import FIGURES, render
from ruler.paper.results import check_results
from ruler.paper.tables import TABLES
from ruler.paper.tables.language import choose_rates
from ruler.paper.tables.layout import arrange
from ruler.paper.tables.numbers import as_frame


@pytest.fixture
def results() -> pd.DataFrame:
    return check_results(make_rows())


def test_the_rate_is_the_largest_that_keeps_retained_authors_or_else_the_smallest(results):
    chosen = choose_rates(results).groupby("method")["learning_rate"].unique()
    assert chosen["npo"].tolist() == [5e-5]
    assert chosen["rmu"].tolist() == [1e-5]
    changed = results.assign(forget_accuracy=1.0, test_accuracy=0.0)
    assert choose_rates(changed)["learning_rate"].equals(choose_rates(results)["learning_rate"])


def test_the_table_has_means_and_counts_of_verdicts(results):
    table = TABLES["language_models"]
    rows = {row.keys[-1]: row for row in arrange(as_frame(table.compute(results)), table).rows}
    assert set(rows) == {"npo", "rmu", "oracle", "original"}
    npo = rows["npo"].numbers
    assert (npo["n_erased"], npo["n_inconclusive"], npo["n_residual"]) == (1, 1, 0)
    assert npo["m2_effect_mean"] == pytest.approx(0.2)
    assert npo["uds_mean"] == pytest.approx(0.125)
    assert math.isnan(npo["truth_ratio_mean"])
    assert rows["rmu"].numbers["learning_rate_mean"] == 1e-5
    assert math.isnan(rows["oracle"].numbers["n_erased"])


def test_the_figure_has_a_line_per_method_over_the_layers(results):
    figure = FIGURES["language_layers"]
    points = figure.gather(results)
    assert set(points["method"]) == {"npo", "rmu", "original"}
    assert points.groupby("layer")["value"].mean().tolist() == pytest.approx([0.5, 0.3])
    drawn = figure.draw(points)
    assert [len(axes.lines) for axes in drawn.axes] == [4]  # the null, and three models
    assert render(drawn, "png").startswith(b"\x89PNG")


def test_other_studies_give_no_table_and_no_figure(results):
    others = results.assign(study="clinical")
    assert TABLES["language_models"].compute(others) == []
    assert FIGURES["language_layers"].gather(others).empty
