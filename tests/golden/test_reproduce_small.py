"""The primary study on two small datasets and three seeds, as the command runs it, against pinned numbers."""

import os
from pathlib import Path

import pandas as pd
import pytest

FRACTIONS = (0.01, 0.05, 0.1)
METHODS = ("gradient_ascent", "neggrad_plus", "fine_tuning", "scrub", "oracle", "original")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    if not (Path(os.environ.get("RULER_DATA", "/nowhere")) / "tabular").is_dir():
        pytest.skip("RULER_DATA does not name a folder with tabular/*.csv.gz")
    from ruler.experiment.run import RunSettings, run_studies
    from ruler.experiment.store import load_results
    from ruler.experiment.studies import choose_studies, narrow_studies

    folder = tmp_path_factory.mktemp("golden")
    studies = narrow_studies(choose_studies("primary"), datasets=["breast_cancer", "heart_disease"], n_seeds=3)
    summary = run_studies(studies, RunSettings(out=folder, models=folder / "models"))
    assert not summary.failures
    return load_results(folder)


def test_every_cell_has_a_row(results: pd.DataFrame) -> None:
    assert len(results) == 2 * 3 * 3 * len(METHODS)
    assert results.groupby(["dataset", "forget_fraction"]).n_forget.first().tolist() == [10, 22, 45, 10, 12, 24]
