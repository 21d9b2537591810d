import gzip

import pandas as pd
import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.tables import read_table
from ruler.data.sources import locate, write_table
from ruler.data.tables.sets import TABULAR_SETS


def test_only_the_empty_string_is_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\nNA,1\n?,\nNone,3\n,4\nnan,5\n")
    table = read_table(path)
    assert table["a"].isna().tolist() == [False, False, False, True, False]
    assert table["b"].isna().tolist() == [False, True, False, False, False]


def test_numbers_are_parsed_to_the_nearest_float(tmp_path):
    path = tmp_path / "t.csv"
    texts = ["0.10299999713897706", "2.2250738585072014e-308", "123456789.12345678901", "0.30000000000000004"]
    path.write_text("a\n" + "\n".join(texts) + "\n")
    assert read_table(path)["a"].tolist() == [float(text) for text in texts]


def test_written_table_reads_back_unchanged(tmp_path):
    table = pd.DataFrame({"a": [0.1, 1 / 3], "b": ["x, y", None], "c": ['say "hi"', "?"]})
    write_table(table, tmp_path / "deep" / "t.csv.gz")
    pd.testing.assert_frame_equal(read_table(tmp_path / "deep" / "t.csv.gz"), table, check_dtype=False)


def test_locate_looks_into_the_data_folder_before_the_cache(tmp_path, monkeypatch):
    entry = TABULAR_SETS["adult"]
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RULER_DATA", raising=False)
    assert locate(entry).place == "to download"
    cached = tmp_path / "cache" / "tabular" / "adult.csv.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert (locate(entry).place, locate(entry).path) == ("cache", cached)
    given = tmp_path / "data" / "tabular" / "adult.csv.gz"
    given.parent.mkdir(parents=True)
    given.touch()
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    assert (locate(entry).place, locate(entry).path) == ("RULER_DATA", given)
    assert locate(entry, root=tmp_path / "elsewhere").place == "cache"
    assert locate(TABULAR_SETS["breast_cancer"]).place == "scikit-learn"


@pytest.mark.parametrize("text", ["", "a,b\n"])
def test_empty_file(tmp_path, text):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match="must hold at least one row below its header; got an empty table"):
        read_table(path)


def test_file_that_is_absent_or_in_another_form(tmp_path):
    with pytest.raises(InputError, match=r"path must be an existing file; got .*t\.csv"):
        read_table(tmp_path / "t.csv")
    (tmp_path / "t.pkl").touch()
    with pytest.raises(FileFormatError, match=r"path must end in \.csv, \.csv\.gz, \.parquet; got 't\.pkl'"):
        read_table(tmp_path / "t.pkl")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.parquet", b"not parquet"),
        ("t.csv.gz", b"not gzip"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 99, mtime=0)[:-12]),
        ("t.csv", b"a,b\n1,2\n1,2,3,4\n"),
        ("t.csv", b"a,b\n\xff\xfe,2\n"),
    ],
)
def test_broken_file(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileFormatError, match=r"must be a sound .* file; it cannot be read"):
        read_table(tmp_path / name)
