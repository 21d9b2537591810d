"""Results of two tables, both diagnostics and language models, and their figures."""

import pandas as pd
import pytest
from tests.paper.language_rows import make_rows

from ruler.paper.figures import write_figures
from ruler.paper.results import check_results


@pytest.fixture(scope="module")
def some_results(all_results):
    is_some = all_results.dataset.isin(["breast_cancer", "phoneme"]) & (all_results.forget_fraction < 0.1)
    is_some |= all_results.study.isin(["faces", "clinical"])
    known = all_results[is_some & (all_results.seed < 5)]
    return check_results(pd.concat([known, make_rows()], ignore_index=True))


@pytest.fixture(scope="module")
def folder(some_results, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    write_figures(some_results, folder)
    return folder
