import hashlib
import io
import json

import pandas as pd
import pytest

import ruler.data.tables.openml
from ruler.core.errors import DataMismatchError, DownloadError, InputError
from ruler.data import TABULAR_SETS, fetch_tabular, load_tabular
from ruler.data.sources import cached_file
from ruler.data.tables.openml import download_table, normalise_openml

AT_OPENML = [key for key, entry in TABULAR_SETS.items() if entry.openml_id]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path))
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "nothing"))


def _as_openml_would(folder, key):
    """The file's own text, dressed as OpenML does: categories, quotes, `?` for missing, numbered names."""
    table = pd.read_csv(folder / "tabular" / f"{key}.csv.gz", dtype=str, keep_default_na=False, na_values=["", "?"])
    features, target = table.iloc[:, :-1], table.iloc[:, -1].rename("Class").astype("category")
    for name in features.select_dtypes(["object", "string"]):
        if pd.to_numeric(features[name], errors="coerce").isna().any():
            features[name] = features[name].map(lambda text: f"'{text}'", na_action="ignore").astype("category")
    if key == "bank_marketing":
        features.columns = [f"V{i + 1}" for i in range(16)]
        target = target.cat.rename_categories({"no": "1", "yes": "2"})
    if key == "magic":
        features.columns = [f"{name}:" for name in features.columns]
    return features, target


@pytest.fixture
def openml(monkeypatch, real_data):
    monkeypatch.setattr(ruler.data.tables.openml, "_ask_openml", lambda entry: _as_openml_would(real_data, entry.key))
    return real_data


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.slow] * (key == "diabetes130")) for key in AT_OPENML]
)
def test_download_gives_the_arrays_and_names_of_the_file(openml, key):
    downloaded, from_file = load_tabular(key), load_tabular(key, root=openml)
    assert cached_file(TABULAR_SETS[key]).is_file()
    assert downloaded.content_hash == from_file.content_hash
    assert downloaded.feature_names == from_file.feature_names


ARFF = """@relation x
@attribute 'V1:' REAL
@attribute job {'blue collar', clerk}
@attribute Class {1, 2}
@data
0.10299999713897706,'blue collar',1
2,?,2
"""


def _answer(url):
    kinds = {"V1:": "numeric", "job": "nominal", "Class": "nominal"}
    flags = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    columns = [
        {"index": str(i), "name": name, "data_type": kind, "is_target": str(name == "Class").lower(), **flags}
        for i, (name, kind) in enumerate(kinds.items())
    ]
    description = {"id": "1489", "name": "x", "version": "1", "format": "ARFF", "file_id": "1", "status": "active"}
    description |= {"description": "", "default_target_attribute": "Class", "url": "https://openml.org/x.arff"}
    description["md5_checksum"] = hashlib.md5(ARFF.encode()).hexdigest()
    if "features" in url:
        return {"data_features": {"feature": columns}}
    if "qualities" in url:
        return {"data_qualities": {"quality": []}}
    return {"data_set_description": description}


def test_scikit_learn_hands_over_the_text_as_published(monkeypatch):
    def serve(request, **_):
        url = request.full_url
        body = ARFF if url.endswith(".arff") or "/download/" in url else json.dumps(_answer(url))
        reply = io.BytesIO(body.encode())
        reply.info = dict
        return reply

    monkeypatch.setattr("sklearn.datasets._openml.urlopen", serve)
    table = download_table(TABULAR_SETS["phoneme"])
    assert table.columns.tolist() == ["V1", "job", "class"]
    assert table["V1"].tolist() == ["0.10299999713897706", "2"]
    assert table["job"].tolist()[0] == "blue collar"
    assert table["job"].isna().tolist() == [False, True]
    assert table["class"].tolist() == ["1", "2"]


def test_bank_marketing_gets_its_names_and_classes_back():
    entry = TABULAR_SETS["bank_marketing"]
    features = pd.DataFrame({f"V{i + 1}": ["1", "2"] for i in range(16)})
    table = normalise_openml(features, pd.Series(["1", "2"]), entry)
    assert table.columns[[0, 1, -2]].tolist() == ["age", "job", "poutcome"]
    assert table.iloc[:, -1].map(entry.class_of).tolist() == [False, True]


def test_question_mark_is_missing_except_where_it_is_a_category():
    features, target = pd.DataFrame({"race": ["White", "?", None]}), pd.Series(["x", "y", "x"])
    adult = normalise_openml(features, target, TABULAR_SETS["adult"])
    diabetes = normalise_openml(features, target, TABULAR_SETS["diabetes130"])
    assert adult["race"].isna().tolist() == [False, True, True]
    assert diabetes["race"].tolist() == ["White", "?", "?"]


def test_another_version_at_openml_is_refused_and_not_kept(monkeypatch, tmp_path):
    answer = pd.DataFrame({"V1": ["1.0", "2.0"]}), pd.Series(["1", "2"])
    monkeypatch.setattr(ruler.data.tables.openml, "_ask_openml", lambda entry: answer)
    with pytest.raises(DataMismatchError, match=r"got another from OpenML 1489 \(rows: 2 instead of 5404; features: 1"):
        load_tabular("phoneme")
    assert not list((tmp_path / "tabular").iterdir())


@pytest.mark.parametrize("error", [OSError("no route"), ValueError("md5 checksum"), KeyError("data_features")])
def test_openml_out_of_reach(monkeypatch, error):
    def fail(entry):
        raise error

    monkeypatch.setattr(ruler.data.tables.openml, "_ask_openml", fail)
    with pytest.raises(DownloadError, match=r"Phoneme must come from OpenML 1489; got .*put tabular/phoneme\.csv\.gz"):
        load_tabular("phoneme")


def test_nothing_to_download_for_a_set_of_scikit_learn():
    with pytest.raises(InputError, match="must be a set that can be downloaded; got 'breast_cancer'"):
        fetch_tabular("breast_cancer")


def test_download_announces_itself_on_a_terminal_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # a dumb one shows no spinner
    monkeypatch.setattr(
        ruler.data.tables.openml, "_ask_openml", lambda entry: (pd.DataFrame({"V1": ["1"]}), pd.Series(["1"]))
    )
    for is_terminal in (True, False):
        screen = io.StringIO()
        screen.isatty = lambda answer=is_terminal: answer
        monkeypatch.setattr("sys.stderr", screen)
        download_table(TABULAR_SETS["phoneme"], progress=True)
        assert ("Fetching Phoneme (OpenML 1489)" in screen.getvalue()) == is_terminal
