"""Tables of strangers: rows of text as they stand, and every fault in one line that names the file."""

import csv
import gzip

import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.tables import open_parquet, read_csv, read_parquet, read_rows, read_table

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_of_csv_are_text(tmp_path):
    path = write(tmp_path / "a.csv", '\ufeffid,text\n007,"fever, cough"\n\n8\n')
    assert read_rows(path) == [{"id": "007", "text": "fever, cough"}, {"id": "8", "text": ""}]
    assert read_csv(path)[0] == ["id", "text"]
    assert read_rows(write(path, "")) == []
    assert read_rows(write(path, "id,text\n")) == []


def test_fields_beyond_the_header_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match=r"at most the 1 fields of its header in each record; got 2 in record 2"):
        read_rows(write(tmp_path / "a.csv", "text\nfever\nfever, cough\n"))


def test_long_fields_are_read_and_the_limit_of_csv_is_put_back(tmp_path):
    limit = csv.field_size_limit()
    path = write(tmp_path / "a.csv", "text\n" + "x" * (limit + 1) + "\n")
    assert len(read_rows(path)[0]["text"]) == limit + 1
    with pytest.raises(FileFormatError, match="it cannot be read: unexpected end of data"):
        read_rows(write(path, 'text\n"fever'))
    assert csv.field_size_limit() == limit


def test_rows_of_json_lines_keep_their_types(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "fever", "id": 7}\n\n{"text": "rash"}\n')
    assert read_rows(path) == [{"text": "fever", "id": 7}, {"text": "rash"}]
    with pytest.raises(FileFormatError, match="must hold one JSON object per line; got another value in line 2"):
        read_rows(write(path, '{"text": "fever"}\n[1]\n'))
    with pytest.raises(FileFormatError, match=r"must be a sound \.jsonl file"):
        read_rows(write(path, '{"text": "fever"'))


@pytest.mark.parametrize(
    ("reader", "name"), [(read_rows, "a.csv"), (read_rows, "a.jsonl"), (read_parquet, "a.parquet")]
)
def test_what_is_no_file_is_told(tmp_path, reader, name):
    with pytest.raises(FileFormatError, match=f"{name} must be a file; got nothing there"):
        reader(tmp_path / name)


def test_parquet_keeps_its_notes(tmp_path):
    table = arrow.table({"a": [1, 2], "b": ["x", None]}).replace_schema_metadata({"note": "kept"})
    parquet.write_table(table, tmp_path / "a.parquet")
    found = read_parquet(tmp_path / "a.parquet")
    assert found.to_pylist() == table.to_pylist()
    assert found.schema.metadata[b"note"] == b"kept"


def test_parquet_bombs_are_refused(tmp_path):
    parquet.write_table(arrow.table({"a": arrow.repeat(0.0, 1 << 23)}), tmp_path / "numbers.parquet")
    with pytest.raises(FileFormatError, match="must not unfold"), open_parquet(tmp_path / "numbers.parquet"):
        pass
    parquet.write_table(arrow.table({"a": arrow.repeat("x" * 1000, 1 << 16)}), tmp_path / "texts.parquet")
    with pytest.raises(FileFormatError, match="must not unfold"):
        read_parquet(tmp_path / "texts.parquet")


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


def test_types_and_nested_texts_come_back_as_they_were(tmp_path):
    columns = {
        "text": ["ann", None, "bob"],
        "image": [{"bytes": b"x", "path": "p"}, None, {"bytes": b"y", "path": None}],
        "list": [["a", "b"], [], None],
        "large": arrow.array(["a", "b", "c"], arrow.large_string()),
        "number": [1.5, None, 2.5],
        "packed": arrow.array(["a", "b", "a"]).dictionary_encode(),
    }
    table = arrow.table(columns)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    found = read_parquet(tmp_path / "a.parquet")
    assert found.schema.equals(parquet.read_schema(tmp_path / "a.parquet"))
    assert found.to_pylist() == table.to_pylist()


def test_packed_csv_that_unfolds_beyond_bounds_is_refused(tmp_path):
    with gzip.open(tmp_path / "a.csv.gz", "wb") as stream:
        stream.write(b"a,b\n" + b"0,0\n" * (1 << 24))
    with pytest.raises(FileFormatError, match="must not unfold to more than 100 times its size"):
        read_table(tmp_path / "a.csv.gz")


def test_short_lines_under_a_wide_header_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", ",".join(f"c{i}" for i in range(20_000)) + "\n" + "1\n" * 20_000)
    for reader in (read_rows, read_table):
        with pytest.raises(FileFormatError, match="must not unfold to more than 100 times its size"):
            reader(path)
