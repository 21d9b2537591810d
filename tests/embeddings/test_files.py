"""Embedding files: every format gives back what was written, and refuses what is not sound."""

import datetime
import os
import pickle

import numpy as np
import pyarrow as arrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow import parquet
from safetensors.numpy import save_file

from ruler.core.errors import FileFormatError, InputError
from ruler.core.types import Embeddings
from ruler.embeddings import load_embeddings, save_embeddings

ENDINGS = [".npy", ".npz", ".parquet", ".safetensors", ".pt"]
KEEP_LAYER = [".npz", ".parquet", ".safetensors", ".pt"]
MAPPED = [".npy", ".safetensors"]

# NumPy's own text arrays drop trailing NULs, before any file is written
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda name: name.rstrip("\0"))


@st.composite
def embeddings(draw):
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, max_side=6))
    values = draw(hnp.arrays(dtype, shape))
    integers = st.integers(-(2**63), 2**63 - 1)
    ids = draw(
        st.none()
        | st.lists(names, min_size=shape[0], max_size=shape[0])
        | st.lists(integers, min_size=shape[0], max_size=shape[0])
    )
    return Embeddings(values, ids, draw(st.none() | st.sampled_from(["net.6:input", "ä\n", ""])))


@pytest.mark.parametrize("ending", ENDINGS)
@given(original=embeddings())
@settings(max_examples=25, deadline=None)
def test_every_format_gives_back_what_was_written(tmp_path_factory, ending, original):
    path = tmp_path_factory.mktemp("round") / f"rows{ending}"
    save_embeddings(original, path)
    found = load_embeddings(path)
    assert found.values.dtype == original.values.dtype
    np.testing.assert_array_equal(found.values, original.values)
    assert found.ids.tolist() == original.ids.tolist()
    assert found.ids.dtype.kind == original.ids.dtype.kind
    assert found.layer == (original.layer if ending in KEEP_LAYER else None)


@pytest.mark.parametrize("ending", ENDINGS)
def test_other_dtypes_and_read_only_views_are_written(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    frozen = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2]
    frozen.flags.writeable = False
    for values, dtype in [(frozen, np.float32), (np.array([[1, 2], [3, 4]]), np.float64)]:
        save_embeddings(Embeddings(values), path)
        found = load_embeddings(path)
        assert found.values.dtype == dtype
        np.testing.assert_array_equal(found.values, values)


@pytest.mark.parametrize("ending", ENDINGS)
def test_writing_leaves_no_other_file_and_replaces_the_old_one(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    save_embeddings(Embeddings(np.ones((2, 2)), ["a", "b"]), path)
    save_embeddings(Embeddings(np.zeros((3, 2))), path)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert load_embeddings(path).ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("ending", ENDINGS)
def test_failed_writing_leaves_the_old_file(tmp_path, ending, monkeypatch):
    path = tmp_path / f"rows{ending}"
    save_embeddings(Embeddings(np.ones((2, 2))), path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_embeddings(Embeddings(np.zeros((2, 2))), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", MAPPED)
def test_values_are_memory_mapped(tmp_path, ending):
    path = tmp_path / f"rows{ending}"
    save_embeddings(Embeddings(np.eye(4, dtype=np.float32)), path)
    assert isinstance(load_embeddings(path).values, np.memmap)


@pytest.mark.parametrize("ending", [ending.upper() for ending in ENDINGS])
def test_endings_in_capitals_are_known(tmp_path, ending):
    save_embeddings(Embeddings(np.eye(2)), tmp_path / f"rows{ending}")
    np.testing.assert_array_equal(load_embeddings(str(tmp_path / f"rows{ending}")).values, np.eye(2))


# files that others wrote


def test_plain_files_of_other_tools_are_read(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "a.npy", np.asfortranarray(values))
    np.savez_compressed(tmp_path / "b.npz", penultimate=values, labels=np.zeros(3))
    np.savez(tmp_path / "c.npz", embeddings=values, other=values * 2, ids=np.array(["x", "y", "z"]))
    save_file({"embeddings": values, "ids": np.array([4, 5, 6])}, tmp_path / "d.safetensors")
    torch.save(torch.tensor(values, requires_grad=True), tmp_path / "e.pt")
    torch.save({"embedding": torch.tensor(values), "ids": ["x", "y", "z"]}, tmp_path / "f.pt")
    torch.save(torch.tensor(values), tmp_path / "g.pt", _use_new_zipfile_serialization=False)
    table = {"id": ["x", "y", "z"], "f0": values[:, 0], "f1": values[:, 1]}
    parquet.write_table(arrow.table(table), tmp_path / "h.parquet")
    parquet.write_table(arrow.table({"embedding": values.tolist(), "label": ["p", "q", "p"]}), tmp_path / "i.parquet")
    found = {file.name: load_embeddings(file) for file in tmp_path.iterdir()}
    assert len(found) == 9
    for rows in found.values():
        np.testing.assert_array_equal(rows.values, values)
    assert found["d.safetensors"].ids.tolist() == [4, 5, 6]
    for name in ("c.npz", "f.pt", "h.parquet"):
        assert found[name].ids.tolist() == ["x", "y", "z"]


# hostile and broken files


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_truncated_files_are_refused_in_one_line(tmp_path, ending, share):
    path = tmp_path / f"rows{ending}"
    save_embeddings(Embeddings(np.random.default_rng(0).normal(size=(40, 30)), [f"n{n}" for n in range(40)]), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(FileFormatError, match=r"rows\.") as caught:
        load_embeddings(path)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("ending", ENDINGS)
@given(content=st.binary(max_size=64))
@settings(max_examples=20, deadline=None)
def test_arbitrary_bytes_are_refused(tmp_path_factory, ending, content):
    path = tmp_path_factory.mktemp("junk") / f"rows{ending}"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"rows\."):
        load_embeddings(path)


@pytest.mark.parametrize("ending", ENDINGS)
@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
@settings(max_examples=30, deadline=None)
def test_a_changed_byte_gives_an_array_or_a_clear_error(tmp_path_factory, ending, place, value):
    path = tmp_path_factory.mktemp("flip") / f"rows{ending}"
    save_embeddings(Embeddings(np.eye(3), ["a", "b", "c"]), path)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] = value
    path.write_bytes(content)
    error = None
    try:
        assert load_embeddings(path).values.ndim == 2
    except FileFormatError as caught:
        error = caught
    assert error is None or path.name in str(error)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("pickle-was-run",))


@pytest.mark.parametrize("name", ["a.npy", "b.npz", "c.pt", "d.npy", "e.npz", "f.pt"])
def test_pickles_are_never_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    objects = np.array([[Bomb()]], dtype=object)
    np.save("a.npy", objects)
    np.savez("b.npz", values=objects)
    torch.save({"values": Bomb()}, "c.pt")
    for plain in ("d.npy", "e.npz", "f.pt"):
        with open(plain, "wb") as stream:
            pickle.dump(Bomb(), stream)
    with pytest.raises(FileFormatError, match=name):
        load_embeddings(name)
    assert not os.path.exists("pickle-was-run")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(3), r"must be 2-D, one row per record; got 1-D"),
        (np.ones((2, 2, 2)), r"must be 2-D, one row per record; got 3-D"),
        (np.ones((2, 2), complex), "must hold real numbers; got dtype complex128"),
        (np.array([["a"]]), "must hold real numbers; got dtype <U1"),
        (np.zeros((2, 2), [("a", "f4")]), "must hold real numbers"),
    ],
)
def test_arrays_that_are_no_embeddings_are_refused(tmp_path, values, message):
    np.save(tmp_path / "a.npy", values)
    np.savez(tmp_path / "a.npz", values=values)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(FileFormatError, match=f"^{tmp_path / name} {message}"):
            load_embeddings(tmp_path / name)


def test_a_file_names_its_matrix_once(tmp_path):
    both = {"values": np.eye(2), "embeddings": 2 * np.eye(2)}
    np.savez(tmp_path / "a.npz", **both)
    save_file(both, tmp_path / "b.safetensors")
    torch.save({name: torch.tensor(values) for name, values in both.items()}, tmp_path / "c.pt")
    parquet.write_table(arrow.table({name: values.tolist() for name, values in both.items()}), tmp_path / "d.parquet")
    for file in tmp_path.iterdir():
        with pytest.raises(FileFormatError, match="its embeddings under one name; got 'values', 'embeddings'"):
            load_embeddings(file)


def test_ids_must_fit_the_rows(tmp_path):
    np.savez(tmp_path / "a.npz", values=np.eye(2), ids=np.arange(3))
    np.save(tmp_path / "b.npy", np.eye(2))
    np.save(tmp_path / "b.ids.npy", np.arange(3))
    for name in ("a.npz", "b.npy"):
        with pytest.raises(FileFormatError, match=r"ids must be one name per row, shape \(2,\); got shape \(3,\)"):
            load_embeddings(tmp_path / name)


def test_paths_must_be_embedding_files(tmp_path):
    with pytest.raises(FileFormatError, match=r"must be an embedding file or a folder of them; got nothing there"):
        load_embeddings(tmp_path / "none.npy")
    with pytest.raises(FileFormatError, match=r"must be an embedding file or a folder of them; got nothing there"):
        load_embeddings(tmp_path / "shards")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(FileFormatError, match=r"must be an embedding file or hold shards ending in .*; got none"):
        load_embeddings(tmp_path / "folder.npy")
    (tmp_path / "rows.csv").write_text("1,2", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"must end in one of \.npy, \.npz, .*; got '\.csv'"):
        load_embeddings(tmp_path / "rows.csv")
    with pytest.raises(FileFormatError, match="got 'no ending'"):
        save_embeddings(Embeddings(np.eye(2)), tmp_path / "rows")
    with pytest.raises(FileFormatError, match=r"must lie in a folder that exists.*Make the folder"):
        save_embeddings(Embeddings(np.eye(2)), tmp_path / "no" / "rows.npy")


def test_only_matrices_with_plain_ids_are_written(tmp_path):
    with pytest.raises(InputError, match="embeddings must be 2-D"):
        save_embeddings(Embeddings(np.ones(3)), tmp_path / "a.npy")
    with pytest.raises(InputError, match="ids must be integers or text; got float"):
        save_embeddings(Embeddings(np.eye(2), [0.5, 1.5]), tmp_path / "a.npy")
    with pytest.raises(InputError, match="ids must be integers or text; got int, str"):
        save_embeddings(Embeddings(np.eye(2), np.array([1, "a"], dtype=object)), tmp_path / "a.npy")
    save_embeddings(Embeddings(np.eye(2), np.array(["b", "a"], dtype=object)), tmp_path / "a.npy")
    assert load_embeddings(tmp_path / "a.npy").ids.tolist() == ["b", "a"]
    save_embeddings(Embeddings(np.eye(2), np.array([7, 3], dtype=object)), tmp_path / "a.npy")
    assert load_embeddings(tmp_path / "a.npy").ids.tolist() == [7, 3]


@pytest.mark.parametrize("ending", ENDINGS)
def test_text_that_is_no_unicode_is_refused(tmp_path, ending):
    with pytest.raises(InputError, match=r"ids must be valid Unicode; got '\\ud800'"):
        save_embeddings(Embeddings(np.eye(2), ["a", "\ud800"]), tmp_path / f"a{ending}")


# what stands beside the rows

NAMED = [".npz", ".parquet", ".safetensors", ".pt"]
ROWS = np.random.default_rng(0).normal(size=(3, 2))


@pytest.mark.parametrize("ending", NAMED)
@pytest.mark.parametrize(
    "labels", [[0, 2, 1], [0.5, 1.0, -2.0], ["cat", "dog", "\u00e4"], [True, False, True]], ids=str
)
def test_what_stands_beside_the_rows_is_kept(tmp_path, ending, labels):
    path = tmp_path / f"rows{ending}"
    given = {"labels": labels, "losses": [0.25, 1e-300, 7.0], "groups": ["a", "b", "a"], "strata": [2020, 2021, 2020]}
    save_embeddings(Embeddings(ROWS, ["x", "y", "z"], "fc", features=np.eye(3), **given), path)
    found = load_embeddings(path)
    for name, values in given.items():
        assert getattr(found, name).tolist() == values
    assert found.ids.tolist() == ["x", "y", "z"]
    assert found.layer == "fc"
    assert found.features is None
    np.testing.assert_array_equal(found.values, ROWS)


@pytest.mark.parametrize("plural", [True, False])
def test_names_beside_the_rows_are_treated_alike_in_every_format(tmp_path, plural):
    names = ("ids", "labels", "losses", "groups") if plural else ("id", "label", "loss", "group")
    values = (np.array([5, 6, 7]), np.array([0, 1, 1]), np.array([0.5, 1.5, 2.5]), np.array([9, 9, 8]))
    beside = {**dict(zip(names, values, strict=True)), "strata": np.array([1, 2, 3])}
    np.savez(tmp_path / "a.npz", penultimate=ROWS, **beside)
    save_file({"penultimate": ROWS, **beside}, tmp_path / "b.safetensors")
    tensors = {name: torch.tensor(column) for name, column in beside.items()}
    torch.save({"penultimate": torch.tensor(ROWS), **tensors}, tmp_path / "c.pt")
    parquet.write_table(arrow.table({"f0": ROWS[:, 0], **beside, "f1": ROWS[:, 1]}), tmp_path / "d.parquet")
    parquet.write_table(arrow.table({**beside, "embedding": ROWS.tolist()}), tmp_path / "e.parquet")
    (tmp_path / "f").mkdir()
    parquet.write_table(arrow.table({"f0": ROWS[:, 0], **beside, "f1": ROWS[:, 1]}), tmp_path / "f" / "0.parquet")
    for path in sorted(tmp_path.iterdir()):
        found = load_embeddings(path)
        np.testing.assert_array_equal(found.values[:], ROWS)
        for name, column in zip(("ids", "labels", "losses", "groups", "strata"), beside.values(), strict=True):
            np.testing.assert_array_equal(getattr(found, name), column)
    assert load_embeddings(tmp_path / "d.parquet").columns == ("f0", "f1")


def test_strata_can_be_any_column(tmp_path):
    days = [datetime.date(2024, 1, day) for day in (1, 2, 1)]
    bands = arrow.array(["old", "young", "old"]).dictionary_encode()
    table = arrow.table({"a": ROWS[:, 0], "band": bands, "b": ROWS[:, 1], "id": [1, 2, 3]})
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match=r"got column 'band' of dictionary.*Remove it, or name it as strata"):
        load_embeddings(tmp_path / "a.parquet")
    found = load_embeddings(tmp_path / "a.parquet", strata="band")
    assert found.strata.tolist() == ["old", "young", "old"]
    np.testing.assert_array_equal(found.values, ROWS)
    parquet.write_table(arrow.table({"embedding": ROWS.tolist(), "day": days}), tmp_path / "b.parquet")
    found = load_embeddings(tmp_path / "b.parquet", strata="day")
    assert found.strata.tolist() == ["2024-01-01", "2024-01-02", "2024-01-01"]
    np.savez(tmp_path / "c.npz", values=ROWS, month=[1, 2, 3])
    assert load_embeddings(tmp_path / "c.npz", strata="month").strata.tolist() == [1, 2, 3]
    with pytest.raises(
        FileFormatError, match=r"must hold the strata that were asked for, 'year'; got 'values', 'month'"
    ):
        load_embeddings(tmp_path / "c.npz", strata="year")
    np.save(tmp_path / "d.npy", ROWS)
    with pytest.raises(FileFormatError, match=r"must have named columns or arrays for strata='year'; \.npy has none"):
        load_embeddings(tmp_path / "d.npy", strata="year")


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"label": [0, 1, 2], "labels": [0, 1, 2]}, "must hold its labels under one name; got 'labels', 'label'"),
        ({"loss": [0.0, np.nan, 1.0]}, "losses must be finite; got NaN or inf in 1 places"),
        ({"losses": ["a", "b", "c"]}, "losses must be numbers; got"),
        ({"groups": ["a", None, "b"]}, "groups must be given for every record; got none for 1 of 3, the first in "),
        ({"labels": [[0], [1], [2, 3]]}, "labels must be one number or text per record; got others"),
    ],
)
def test_unsound_columns_beside_the_rows_are_refused(tmp_path, beside, message):
    parquet.write_table(arrow.table({"embedding": ROWS.tolist(), **beside}), tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match=message):
        load_embeddings(tmp_path / "a.parquet")


def test_labels_must_fit_the_rows(tmp_path):
    np.savez(tmp_path / "a.npz", values=ROWS, labels=np.eye(3))
    with pytest.raises(FileFormatError, match=r"labels must be one per record, 3 in all; got shape \(3, 3\)"):
        load_embeddings(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", penultimate=ROWS, labels=np.ones((3, 1)))
    assert load_embeddings(tmp_path / "a.npz").labels.tolist() == [1, 1, 1]
