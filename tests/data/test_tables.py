import dataclasses
import decimal
import gzip
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from ruler.core.errors import DataMismatchError, InputError, UnknownNameError
from ruler.data import DATASETS, TabularData, TabularSet, list_datasets, load_tabular, sample_rows, split
from ruler.data.sources import write_table
from ruler.data.tables import encode_classes, encode_features

SHARE_OF_CLASS_1 = {
    "adult": 11687 / 48842,
    "diabetes130": 1 - 11357 / 101766,
    "breast_cancer": 357 / 569,
    "heart_disease": 138 / 303,
    "german_credit": 0.7,
    "bank_marketing": 5289 / 45211,
    "wine_quality": 855 / 1599,
    "phoneme": 1586 / 5404,
    "magic": 6688 / 19020,
    "electricity": 19237 / 45312,
}


@pytest.mark.parametrize("key", list_datasets("primary"))
def test_published_set_loads_verified(real_data, key):
    data = load_tabular(key, root=real_data)
    assert data.features.shape == (DATASETS[key].n_rows, DATASETS[key].n_features)
    assert (data.features.dtype, data.target.dtype) == (np.float64, np.int64)
    assert np.isfinite(data.features).all()
    assert data.target.mean() == pytest.approx(SHARE_OF_CLASS_1[key], abs=1e-12)
    assert len(data.feature_names) == data.features.shape[1]
    assert data.ids.tolist() == list(range(len(data)))


def test_encoding_of_the_first_heart_records(real_data):
    data = load_tabular("heart_disease", root=real_data)
    # 63,male,typ_angina,145,233,t,left_vent_hyper,150,no,2.3,down,0,fixed_defect
    assert data.features[0].tolist() == [63, 1, 3, 145, 233, 1, 0, 150, 0, 2.3, 0, 0, 0]
    thal = data.features[:, data.feature_names.index("thal")]
    assert (thal == 3).sum() == 2  # the code after the last category, for the two records without one


def test_loading_is_found_through_the_environment(real_data, monkeypatch, tmp_path):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    monkeypatch.setenv("RULER_DATA", str(real_data))
    assert load_tabular("phoneme").name == "phoneme"
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "nothing"))
    (tmp_path / "tabular").mkdir()
    shutil.copy(real_data / "tabular" / "phoneme.csv.gz", tmp_path / "tabular")
    assert load_tabular("phoneme").name == "phoneme"


def _altered(lines, what):
    if what == "rows":
        return lines[:-1]
    if what == "features":
        return [line.partition(b",")[2] for line in lines]
    if what == "order":
        return [lines[0], *lines[:0:-1]]
    return [*lines[:-1], lines[-1].replace(b".", b".1", 1)]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("rows", r"\(rows: 5403 instead of 5404; content: \w+ instead of a36a831c7352\)"),
        ("features", r"\(features: 4 instead of 5; content: \w+ instead of \w+\)"),
        ("order", r"\(content: \w+ instead of \w+\)"),
        ("value", r"\(content: \w+ instead of \w+\)"),
    ],
)
def test_another_version_is_refused_with_what_differs(real_data, tmp_path, what, message):
    lines = gzip.decompress((real_data / "tabular" / "phoneme.csv.gz").read_bytes()).splitlines()
    (tmp_path / "tabular").mkdir()
    altered = b"\n".join(_altered(lines, what)) + b"\n"
    (tmp_path / "tabular" / "phoneme.csv.gz").write_bytes(gzip.compress(altered, mtime=0))
    with pytest.raises(DataMismatchError, match=rf"Phoneme must be the paper's version; got another .*{message}"):
        load_tabular("phoneme", root=tmp_path)


def test_hash_sees_shape_features_and_target(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,0\n3,4,1\n")
    data = load_tabular(tmp_path / "t.csv", target="y")
    object.__setattr__(data, "features", np.asfortranarray(data.features))
    same = load_tabular(tmp_path / "t.csv", target="y").content_hash
    assert data.content_hash == same
    object.__setattr__(data, "target", data.target[::-1])
    assert data.content_hash != same
    object.__setattr__(data, "target", data.target[::-1])
    object.__setattr__(data, "features", data.features.reshape(1, 4, order="C"))
    assert data.content_hash != same


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_own_file_in_every_form(tmp_path, suffix):
    table = pd.DataFrame(
        {"who": ["ann", "bob", "cy"], "age": [30.0, None, 50.0], "y": ["c", "a", "b"], "job": ["x", None, "w"]}
    )
    path = tmp_path / f"people{suffix}"
    table.to_parquet(path) if suffix == ".parquet" else table.to_csv(path, index=False)
    data = load_tabular(str(path), target="y", ids="who")
    assert data.features.tolist() == [[30, 1], [40, 2], [50, 0]]
    assert (data.target.tolist(), data.classes) == ([2, 0, 1], ("a", "b", "c"))
    assert (data.feature_names, data.name) == (("age", "job"), f"people{suffix}")
    assert data.ids.tolist() == ["ann", "bob", "cy"]


def test_ids_may_be_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("n,a,y\n7,1,0\n9,2,1\n")
    assert load_tabular(tmp_path / "t.csv", target="y", ids="n").ids.tolist() == [7, 9]


def test_relative_path_with_a_folder_is_a_path():
    with pytest.raises(InputError, match="path must be an existing file; got 'somewhere/adult'"):
        load_tabular("somewhere/adult")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, InputError, r"target must name the column with the classes; got None. t\.csv has who, age, label"),
        (
            {"target": "lable"},
            UnknownNameError,
            r"column of t\.csv must be one of age, label, who; got 'lable'. Did you mean 'label'",
        ),
        ({"target": "label", "ids": "name"}, UnknownNameError, r"column of t\.csv must be one of .* got 'name'"),
        ({"target": "label", "ids": "who"}, InputError, "ids column 'who' must name each record once; got 2 rows"),
    ],
)
def test_wrong_columns_of_an_own_file(tmp_path, arguments, error, message):
    (tmp_path / "t.csv").write_text("who,age,label\nann,1,x\nann,2,y\n,3,y\n")
    with pytest.raises(error, match=message):
        load_tabular(tmp_path / "t.csv", **arguments)


def test_own_file_without_features(tmp_path):
    (tmp_path / "t.csv").write_text("who,label\nann,x\nbob,y\n")
    with pytest.raises(InputError, match="must have a column beside target and ids; got none"):
        load_tabular(tmp_path / "t.csv", target="label", ids="who")


def test_unknown_set_and_target_of_a_published_set():
    with pytest.raises(UnknownNameError, match="Did you mean 'adult'"):
        load_tabular("adullt")
    with pytest.raises(InputError, match="target and ids must be omitted for a dataset with a name; got target='x'"):
        load_tabular("breast_cancer", target="x")


def test_room_opens_without_the_heavy_packages():
    code = "import sys, ruler.data; sys.exit(bool({'pandas', 'sklearn', 'torch', 'PIL', 'pyarrow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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


def _make_higgs(n_rows):
    features = pd.DataFrame(np.random.default_rng(0).normal(size=(n_rows, 28)).round(3)).astype(str)
    return features.assign(label=(np.arange(n_rows) % 2).astype(str))


def test_download_of_other_higgs_rows_is_marked_as_such(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    assert DATASETS["higgs"].home_rows == 98050
    small = dataclasses.replace(DATASETS["higgs"], home_rows=60, download=lambda dataset, progress: _make_higgs(60))
    data = load_tabular(small)
    assert len(data) == 60
    assert data.note == small.home_note
    assert data.content_hash != small.content_hash
    assert load_tabular(dataclasses.replace(small, download=None)).content_hash == data.content_hash  # from the cache


def test_other_rows_in_the_data_folder_or_in_another_number_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "data" / "tabular" / "higgs.csv.gz"
    write_table(_make_higgs(50), path)
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


def test_a_table_of_ones_own_is_checked_against_its_description():
    table = load_tabular("breast_cancer")
    own = TabularSet(key="own", title="Own", n_rows=569, n_features=30, read=lambda: table)
    found = load_tabular(own)
    assert isinstance(found, TabularData)
    assert (found.name, found.content_hash) == ("own", table.content_hash)
    for wrong, message in (({"n_rows": 500}, "rows: 569 instead of 500"), ({"content_hash": "ab"}, r"content: \w{12}")):
        with pytest.raises(
            DataMismatchError, match=rf"Own must be as described; got another .*{message}.* Correct its"
        ):
            load_tabular(dataclasses.replace(own, **wrong))


def test_text_is_coded_in_ascii_order_and_missing_text_comes_last():
    table = pd.DataFrame({"a": ["b", "B", None, "?", "a", "B"]})
    assert encode_features(table)[:, 0].tolist() == [3, 1, 4, 0, 2, 1]


def test_missing_number_becomes_the_median_of_its_column():
    table = pd.DataFrame({"a": [1.0, np.nan, 2.0, 10.0], "b": pd.array([4, None, 1, 1], dtype="Int64")})
    assert encode_features(table)[1].tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pd.Series([True, False]), [1, 0]),
        (pd.Series([True, None, False], dtype=object), [1, 2, 0]),
        (pd.Series(["10", "9"], dtype="category"), [0, 1]),
        (pd.Series([10, 9], dtype="category"), [10, 9]),
        (pd.Series([decimal.Decimal("1.5"), None, decimal.Decimal(2)], dtype=object), [1.5, 1.75, 2]),
        (pd.Series(pd.to_datetime(["2024-03-01", "2023-01-01"])), [1, 0]),
        (pd.Series([2, "1", "2"], dtype=object), [1, 0, 1]),
    ],
)
def test_column_types_beyond_plain_numbers_and_text(column, expected):
    assert encode_features(pd.DataFrame({"a": column}))[:, 0].tolist() == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, None], "column 'a' must hold at least one value; got none"),
        ([1.0, np.inf], "column 'a' must be finite; got inf in 1 rows"),
        ([[1, 2], [3, 4]], "column 'a' must hold numbers or text; got list"),
        ([b"x", b"y"], "column 'a' must hold numbers or text; got bytes"),
    ],
)
def test_column_that_cannot_be_encoded(values, message):
    with pytest.raises(InputError, match=message):
        encode_features(pd.DataFrame({"a": pd.Series(values, dtype=None if values[0] == 1.0 else object)}))


def test_classes_are_sorted_by_value_or_by_ascii():
    codes, classes = encode_classes(pd.Series([10, 9, 10, 2]), "grade")
    assert (codes.tolist(), classes) == ([2, 1, 2, 0], ("2", "9", "10"))
    codes, classes = encode_classes(pd.Series(["10", "9", "b"]), "grade")
    assert (codes.tolist(), classes) == ([0, 1, 2], ("10", "9", "b"))
    assert codes.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["yes", None, None], "target column 'y' must have a label in every row; got 2 rows without"),
        ([0.5, 1.0], "target column 'y' must hold classes; got measurements, such as 0.5"),
        ([np.inf, 1.0], "target column 'y' must hold classes; got measurements, such as inf"),
        (["yes", "yes"], "target column 'y' must hold at least two classes; got only 'yes'"),
    ],
)
def test_labels_that_are_no_classes(labels, message):
    with pytest.raises(InputError, match=message):
        encode_classes(pd.Series(labels), "y")
