"""Tables of embeddings."""

import numpy as np
import pandas
import pyarrow as arrow
import pytest
from pyarrow import parquet

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings import load_embeddings, save_embeddings


def test_large_tables_are_written_in_bounded_row_groups(tmp_path):
    values = np.random.default_rng(0).normal(size=(3000, 700)).astype(np.float32)
    save_embeddings(Embeddings(values, np.arange(3000) * 2), tmp_path / "rows.parquet")
    assert parquet.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 3
    found = load_embeddings(tmp_path / "rows.parquet")
    np.testing.assert_array_equal(found.values, values)
    assert found.ids[-1] == 5998


def test_wide_tables_are_refused_before_reading(tmp_path):
    zeros = np.zeros(1 << 23, np.float32)
    for name, column in {
        "a": arrow.FixedSizeListArray.from_arrays(arrow.array(zeros), 1 << 22),
        "b": arrow.array(zeros),
    }.items():
        parquet.write_table(arrow.table({"values" if name == "a" else "f0": column}), tmp_path / f"{name}.parquet")
        with pytest.raises(FileFormatError, match="it claims"):
            load_embeddings(tmp_path / f"{name}.parquet")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"embedding": [[1.0, 2.0], [3.0]]}, "lists of one length without nulls"),
        ({"embedding": [[1.0, 2.0], None]}, "lists of one length without nulls"),
        ({"embedding": [[1.0, 2.0], [3.0, None]]}, "lists of one length without nulls"),
        ({"embedding": [1.0, 2.0]}, "cannot be read"),
        ({"a": [1.0], "b": ["x"]}, "must be numeric but for its ids, labels, .*; got column 'b' of string"),
        ({"id": ["x"]}, "must have columns besides its id"),
        ({"a": arrow.array([], arrow.float32())}, "must hold at least one row"),
        ({"a": [1.0, 2.0], "id": ["x", None]}, "ids must be integers or text; got NoneType, str"),
        ({"a": [1.0], "id": [1.5]}, "ids must be integers or text; got float"),
    ],
)
def test_unsound_tables_are_refused(tmp_path, table, message):
    parquet.write_table(arrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match=message):
        load_embeddings(tmp_path / "a.parquet")


@pytest.mark.parametrize("name", [None, "row"])
def test_the_index_of_a_data_frame_is_no_dimension(tmp_path, name):
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=pandas.Index([7, 9], name=name))
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match=f"got column '{name or '__index_level_0__'}', the index of a DataFrame"):
        load_embeddings(tmp_path / "a.parquet")
    frame.rename_axis("id").to_parquet(tmp_path / "a.parquet")
    found = load_embeddings(tmp_path / "a.parquet")
    assert (found.ids.tolist(), found.values.tolist()) == ([7, 9], [[1, 3], [2, 4]])


def test_a_table_that_is_refused_is_named(tmp_path):
    for n, columns in enumerate(({"a": [1.0], "b": ["x"]}, {"id": ["x"]}, {"embedding": [[1.0], [1.0, 2.0]]})):
        path = tmp_path / f"table{n}.parquet"
        parquet.write_table(arrow.table(columns), path)
        with pytest.raises(FileFormatError, match=path.name):
            load_embeddings(path)
