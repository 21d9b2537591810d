import dataclasses

import numpy as np
import pandas as pd
import pytest

import ruler.data.tables.openml
import ruler.data.tables.tabular
from ruler.core.errors import DataMismatchError
from ruler.data import LARGE_SETS, TABULAR_SETS, load_tabular, sample_rows, split
from ruler.data.sources import write_table


def test_they_stay_out_of_the_primary_study():
    assert set(LARGE_SETS) == {"covertype", "higgs"}
    assert set(LARGE_SETS).isdisjoint(TABULAR_SETS)


@pytest.mark.slow
def test_covertype(real_data):
    data = load_tabular("covertype", root=real_data)
    assert data.features.shape == (581012, 54)
    assert np.bincount(data.target).tolist() == [211840, 283301, 35754, 2747, 9493, 17367, 20510]
    assert data.classes[6] == "Krummholz"
    sample = sample_rows(data, 100_000)
    shares = np.bincount(sample.target) / 100_000 - np.bincount(data.target) / len(data)
    assert np.abs(shares).max() < 1e-5
    np.testing.assert_array_equal(sample.features, data.features[sample.ids])
    assert split(sample).train_features.shape == (80_000, 54)


def test_higgs_says_how_many_rows_there_are(real_data):
    data = load_tabular("higgs", root=real_data)
    assert data.features.shape == (51233, 28)
    assert (data.classes, np.bincount(data.target).tolist()) == (("background", "signal"), [24096, 27137])
    assert "51,233" in data.note
    assert "100,000" in data.note


def _higgs(n_rows):
    features = pd.DataFrame(np.random.default_rng(0).normal(size=(n_rows, 28)).round(3)).astype(str)
    return features, pd.Series(np.arange(n_rows) % 2).astype(str)


def test_download_of_other_higgs_rows_is_marked_as_such(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    assert LARGE_SETS["higgs"].home_rows == 98050
    entry = dataclasses.replace(LARGE_SETS["higgs"], home_rows=60)
    monkeypatch.setitem(ruler.data.tables.tabular._TABLES._entries, "higgs", entry)
    monkeypatch.setattr(ruler.data.tables.openml, "_ask_openml", lambda _: _higgs(60))
    data = load_tabular("higgs")
    assert len(data) == 60
    assert data.note == entry.home_note
    assert data.content_hash != entry.content_hash


def test_other_rows_in_the_data_folder_or_in_another_number_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    features, target = _higgs(50)
    path = tmp_path / "data" / "tabular" / "higgs.csv.gz"
    write_table(features.assign(label=target), path)
    with pytest.raises(DataMismatchError, match=r"must be the rows measured here; got .*rows: 50 instead of 51233"):
        load_tabular("higgs", root=tmp_path / "data")
    (tmp_path / "cache").mkdir()
    (path.parent).rename(tmp_path / "cache" / "tabular")
    with pytest.raises(DataMismatchError, match="rows: 50 instead of 51233"):
        load_tabular("higgs", root=tmp_path / "data")


@pytest.mark.parametrize("label", ["fir", ""])
def test_a_last_column_without_classes_is_refused_in_one_line(tmp_path, label):
    table = pd.DataFrame({"height": ["1", "2"], "cover": ["1", label]})
    write_table(table, tmp_path / "tabular" / "covertype.csv.gz")
    with pytest.raises(DataMismatchError, match="last column of Covertype must hold its classes; got something else"):
        load_tabular("covertype", root=tmp_path)
