"""Pages of parquet files that unfold to more than their file."""

import pytest

from ruler.core.errors import FileFormatError
from ruler.core.readers.tables import read_parquet

arrow = pytest.importorskip("pyarrow")


parquet = pytest.importorskip("pyarrow.parquet")


def test_one_long_text_on_every_row_is_refused_before_it_is_copied(tmp_path):
    text = arrow.array(["x" * 1_000_000]).dictionary_encode()
    repeated = arrow.DictionaryArray.from_arrays(arrow.array([0] * 20_000, arrow.int32()), text.dictionary)
    parquet.write_table(arrow.table({"group": repeated}), tmp_path / "a.parquet")
    parquet.write_table(arrow.table({"group": arrow.array(["x" * 1000] * 500)}), tmp_path / "sound.parquet")
    before = arrow.total_allocated_bytes()
    with pytest.raises(FileFormatError, match=r"a\.parquet must not unfold to more than 100 times its size"):
        read_parquet(tmp_path / "a.parquet")
    assert arrow.total_allocated_bytes() - before < 1 << 24
    assert read_parquet(tmp_path / "sound.parquet")["group"].to_pylist() == ["x" * 1000] * 500


@pytest.mark.parametrize("column", [arrow.nulls(10**8), arrow.repeat(True, 10**8)], ids=["nulls", "booleans"])
def test_many_rows_of_nothing_are_refused(tmp_path, column):
    parquet.write_table(arrow.table({"group": column}), tmp_path / "a.parquet", row_group_size=10**8)
    assert (tmp_path / "a.parquet").stat().st_size < 1 << 20
    with pytest.raises(FileFormatError, match="must not unfold to more than 100 times its size"):
        read_parquet(tmp_path / "a.parquet")


def test_pages_that_unfold_to_more_than_the_footer_says_are_refused(tmp_path):
    values = arrow.array(range(1 << 21), arrow.int64())
    parquet.write_table(arrow.table({"a": values}), tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    assert read_parquet(tmp_path / "a.parquet").num_rows == 1 << 21
    content = (tmp_path / "a.parquet").read_bytes()
    # the header of the first page: field 2, a number of the page's size once unpacked; made 2 GB
    start = content.index(b"\x15\x00\x15") + 3
    stop = next(place for place in range(start, start + 5) if content[place] < 128) + 1
    huge = b"\xfe\xff\xff\xff\x0f"
    (tmp_path / "a.parquet").write_bytes(content[:start] + huge + content[stop : -(len(huge) - (stop - start)) or None])
    with pytest.raises(FileFormatError, match=r"a\.parquet must"):
        read_parquet(tmp_path / "a.parquet")
