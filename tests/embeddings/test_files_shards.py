import os

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from ruler.core.checks import measure_norms
from ruler.core.errors import FileFormatError, InputError
from ruler.core.stacked import StackedRows
from ruler.core.types import Embeddings
from ruler.embeddings import load_embeddings, save_embeddings

torch = pytest.importorskip("torch")
ROWS = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32)
ENDINGS = (".npy", ".safetensors", ".parquet")


def write(folder, endings, ids=None):
    folder.mkdir(exist_ok=True)
    for i, (rows, ending) in enumerate(zip(np.array_split(ROWS, len(endings)), endings, strict=True)):
        names = None if ids is None else np.array_split(ids, len(endings))[i]
        save_embeddings(Embeddings(rows, names), folder / f"rows-{i}{ending}")
    return folder


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("ids", [None, np.arange(40) * 3, np.array([f"r{i}" for i in range(40)])], ids=str)
def test_a_folder_is_the_joined_file(tmp_path, ending, ids):
    found = load_embeddings(write(tmp_path / "rows", [ending] * 7, ids))
    assert isinstance(found.values, StackedRows)
    np.testing.assert_array_equal(found.values[:], ROWS)
    assert found.ids.tolist() == (list(range(40)) if ids is None else ids.tolist())


def test_kinds_mix_and_other_files_are_passed_over(tmp_path):
    folder = write(tmp_path / "rows", [".npy", ".safetensors", ".parquet"], np.arange(100, 140))
    (folder / "README.md").write_text("what this is")
    (folder / ".rows-9.npy.part").write_bytes(b"half")
    (folder / "more").mkdir()
    found = load_embeddings(folder)
    np.testing.assert_array_equal(found.values[:], ROWS)
    assert found.ids.tolist() == list(range(100, 140))


def test_bfloat16_shards_are_widened_when_they_are_read(tmp_path):
    from safetensors.torch import save_file

    save_file({"values": torch.from_numpy(ROWS[:9]).bfloat16()}, tmp_path / "a.safetensors")
    save_file({"values": torch.from_numpy(ROWS[9:]).bfloat16()}, tmp_path / "b.safetensors")
    found = load_embeddings(tmp_path).values
    assert not isinstance(found.parts[0], np.ndarray)
    np.testing.assert_array_equal(found[[39, 0, 8, 9]], torch.from_numpy(ROWS[[39, 0, 8, 9]]).bfloat16().float())
    assert found.dtype == np.float32


def test_parquet_in_several_row_groups_is_unpacked_once(tmp_path):
    table = arrow.table({f"c{i}": ROWS[:, i] for i in range(5)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    found = load_embeddings(tmp_path).values
    (tmp_path / "a.parquet").unlink()
    np.testing.assert_array_equal(found[:], ROWS)
    assert isinstance(found.parts[0], np.memmap)


def test_lists_of_changing_length_are_refused(tmp_path):
    lists = [[1.0, 2.0]] * 9000 + [[1.0, 2.0, 3.0]] * 8192
    parquet.write_table(arrow.table({"embedding": lists}), tmp_path / "a.parquet")
    with pytest.raises(FileFormatError, match="must hold lists of one length"):
        load_embeddings(tmp_path)


def test_widths_must_agree(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(2))
    np.save(tmp_path / "b.npy", np.eye(3))
    with pytest.raises(FileFormatError, match=r"b\.npy must be as wide as a\.npy; got 3 and 2 columns"):
        load_embeddings(tmp_path)


def test_nothing_pickled_is_opened(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    with pytest.raises(FileFormatError, match=r"a\.npy must be a sound \.npy file; it cannot be read"):
        load_embeddings(tmp_path)


@pytest.mark.parametrize(("content", "found"), [([], "none"), (["a.npz", "b.npy"], r"'a\.npz'"), (["x.csv"], "none")])
def test_a_folder_must_hold_shards(tmp_path, content, found):
    for name in content:
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileFormatError, match=f"hold shards ending in .npy, .parquet, .safetensors; got {found}"):
        load_embeddings(tmp_path)


def test_all_shards_are_named_or_none(tmp_path):
    write(tmp_path, [".npy", ".npy"], np.arange(40) + 7)
    (tmp_path / "rows-0.ids.npy").unlink()
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must have ids, as rows-1\.npy does"):
        load_embeddings(tmp_path)
    np.save(tmp_path / "rows-0.ids.npy", np.arange(3))
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must have ids for each row; got \(3,\) for 20 rows"):
        load_embeddings(tmp_path)


def test_vectors_one_number_deep_are_no_shard(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(FileFormatError, match=r"a\.npy must be 2-D with at least one row; got shape \(3,\)"):
        load_embeddings(tmp_path)


def write_table(path, columns, rows=ROWS):
    parquet.write_table(arrow.table(dict(zip(columns, rows.T, strict=True))), path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["c0", "c2", "c1", "c3", "c4"], "got 'c1' and 'c2' in place 1"),
        (["c0", "c1", "c2", "c3", "c9"], "got 'c4' and 'c9' in place 4"),
    ],
)
def test_tables_must_have_the_same_columns_in_the_same_order(tmp_path, columns, message):
    for i, names in enumerate([[f"c{i}" for i in range(5)], columns]):
        write_table(tmp_path / f"{i}.parquet", names)
    with pytest.raises(FileFormatError, match=rf"0\.parquet and 1\.parquet must have the same columns .*; {message}"):
        load_embeddings(tmp_path)


def test_names_of_columns_are_kept_and_the_name_of_a_list_is_not(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "one.parquet", tmp_path / "folder" / "0.parquet"):
        write_table(path, "abcde")
    assert load_embeddings(tmp_path / "one.parquet").columns == tuple("abcde")
    assert load_embeddings(tmp_path / "folder").columns == tuple("abcde")
    save_embeddings(Embeddings(ROWS), tmp_path / "list.parquet")
    assert load_embeddings(tmp_path / "list.parquet").columns is None


def test_tables_of_lists_and_of_columns_do_not_mix(tmp_path):
    save_embeddings(Embeddings(ROWS), tmp_path / "0.parquet")
    write_table(tmp_path / "1.parquet", "abcde")
    with pytest.raises(
        FileFormatError, match=r"0\.parquet and 1\.parquet must have the same columns .*'embedding' and 'a'"
    ):
        load_embeddings(tmp_path)
    parquet.write_table(arrow.table({"values": ROWS.tolist()}), tmp_path / "1.parquet")
    with pytest.raises(FileFormatError, match=r"1\.parquet must have .*got 'embedding' and 'values' in place 0"):
        load_embeddings(tmp_path)


def test_ids_and_labels_beside_lists_may_stand_anywhere(tmp_path):
    lists, names = ROWS[:2].tolist(), ["p", "q"]
    parquet.write_table(arrow.table({"id": names, "label": [1, 1], "embedding": lists}), tmp_path / "0.parquet")
    parquet.write_table(arrow.table({"embedding": lists, "label": [0, 1], "id": ["r", "s"]}), tmp_path / "1.parquet")
    found = load_embeddings(tmp_path)
    np.testing.assert_array_equal(found.values[:], ROWS[[0, 1, 0, 1]])
    assert found.ids.tolist() == ["p", "q", "r", "s"]
    assert found.labels.tolist() == [1, 1, 0, 1]


def test_tables_with_more_columns_are_of_another_width(tmp_path):
    write_table(tmp_path / "0.parquet", "abcd", ROWS[:, :4])
    write_table(tmp_path / "1.parquet", "abcde")
    with pytest.raises(FileFormatError, match=r"1\.parquet must be as wide as 0\.parquet; got 5 and 4 columns"):
        load_embeddings(tmp_path)


def test_nulls_in_a_later_batch_of_integers_are_refused(tmp_path):
    numbers = list(range(9999))
    parquet.write_table(arrow.table({"a": [*numbers, 1], "b": [*numbers, None]}), tmp_path / "0.parquet")
    for path in (tmp_path, tmp_path / "0.parquet"):
        with pytest.raises(FileFormatError, match=r"0\.parquet must hold no nulls; got some in column 'b'"):
            load_embeddings(path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_row_that_is_not_finite_is_found_in_its_shard(tmp_path, ending):
    write(tmp_path, [ending] * 4)
    bad = ROWS[20:30].copy()
    bad[[3, 7], 2] = np.nan, np.inf
    save_embeddings(Embeddings(bad), tmp_path / f"rows-2{ending}")
    with pytest.raises(InputError, match=rf"NaN or inf in 2 rows, the first is row 3 of rows-2\{ending}\. Drop"):
        measure_norms(load_embeddings(tmp_path).values, "retain")


def test_names_are_sorted_as_text(tmp_path):
    for number in (1, 2, 10):
        np.save(tmp_path / f"rows-{number}.npy", np.full((1, 2), number))
    assert load_embeddings(tmp_path).values[:][:, 0].tolist() == [1, 10, 2]


def test_integer_ids_that_go_on_from_shard_to_shard_are_row_numbers(tmp_path):
    write(tmp_path, [".npy"] * 3, np.arange(40))
    assert not (tmp_path / "rows-0.ids.npy").exists()
    assert load_embeddings(tmp_path).ids.tolist() == list(range(40))
    (tmp_path / "rows-1.ids.npy").unlink()
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must have ids, as rows-2\.npy does"):
        load_embeddings(tmp_path)


def test_ids_are_of_one_kind(tmp_path):
    save_embeddings(Embeddings(ROWS[:2], [5, 6]), tmp_path / "a.npy")
    save_embeddings(Embeddings(ROWS[2:4], ["5", "6"]), tmp_path / "b.parquet")
    with pytest.raises(FileFormatError, match=r"b\.parquet must have ids of the same kind as a\.npy; got text and"):
        load_embeddings(tmp_path)


def test_ids_without_their_shard_are_refused(tmp_path):
    write(tmp_path, [".npy"] * 2, np.arange(40) + 7)
    (tmp_path / "rows-1.npy").unlink()
    with pytest.raises(FileFormatError, match=r"rows-1\.ids\.npy must lie beside the \.npy shard whose rows it names"):
        load_embeddings(tmp_path)


def test_the_same_shard_in_two_formats_is_refused(tmp_path):
    write(tmp_path, [".npy", ".npy"])
    save_embeddings(Embeddings(ROWS[:20]), tmp_path / "rows-0.safetensors")
    with pytest.raises(FileFormatError, match=r"rows-0\.safetensors must differ .*count twice; got rows-0\.npy too"):
        load_embeddings(tmp_path)


def test_layers_must_agree_where_they_are_known(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    save_embeddings(Embeddings(ROWS, layer="fc:input"), tmp_path / "b.safetensors")
    assert load_embeddings(tmp_path).layer == "fc:input"
    save_embeddings(Embeddings(ROWS, layer="conv"), tmp_path / "c.parquet")
    with pytest.raises(
        FileFormatError,
        match=r"b\.safetensors and c\.parquet must be read at the same layer; got 'fc:input' and 'conv'",
    ):
        load_embeddings(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "pipe", "broken link"])
def test_shards_are_plain_files(tmp_path, kind):
    write(tmp_path, [".npy"])
    path = tmp_path / "rows-1.npy"
    {"folder": os.mkdir, "pipe": os.mkfifo, "broken link": lambda path: os.symlink("nowhere", path)}[kind](path)
    with pytest.raises(FileFormatError, match=r"rows-1\.npy must be a plain file; got something else"):
        load_embeddings(tmp_path)


@pytest.mark.parametrize("ending", ENDINGS)
def test_empty_shards_are_refused(tmp_path, ending):
    write(tmp_path, [ending])
    path = tmp_path / f"rows-1{ending}"
    if ending == ".npy":
        np.save(path, ROWS[:0])
    elif ending == ".safetensors":
        save_file({"values": ROWS[:0]}, path)
    else:
        write_table(path, "abcde", ROWS[:0])
    with pytest.raises(FileFormatError, match=rf"rows-1\{ending} must .*at least one row"):
        load_embeddings(tmp_path)


def test_precisions_meet_in_one_that_holds_them_all(tmp_path):
    np.save(tmp_path / "a.npy", ROWS[:2].astype(np.float16))
    np.save(tmp_path / "b.npy", np.full((1, 5), 2**24 + 1, np.int32))
    np.save(tmp_path / "c.npy", ROWS[:1].astype(">f4"))
    found = load_embeddings(tmp_path).values[:]
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [*ROWS[:2].astype(np.float16), [2**24 + 1] * 5, ROWS[0]])


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "iterdir", refuse)
    with pytest.raises(FileFormatError, match=r"must be readable; got: Permission denied\. Check its rights"):
        load_embeddings(tmp_path)


def test_too_many_open_files_are_no_fault_of_the_shard(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(24, "Too many open files")

    write(tmp_path, [".npy"])
    monkeypatch.setattr(np.lib.format, "open_memmap", refuse)
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must be readable; got: Too many open files.*ulimit -n"):
        load_embeddings(tmp_path)


@pytest.mark.parametrize("ending", [".safetensors", ".parquet"])
def test_what_stands_beside_the_rows_is_joined(tmp_path, ending):
    for number, rows in enumerate(np.array_split(np.arange(40), 3)):
        one = Embeddings(
            ROWS[rows], labels=rows % 3, losses=rows / 7, groups=[f"g{row // 2}" for row in rows], strata=rows % 2
        )
        save_embeddings(one, tmp_path / f"{number}{ending}")
    found = load_embeddings(tmp_path)
    assert found.labels.tolist() == (np.arange(40) % 3).tolist()
    assert found.losses.tolist() == (np.arange(40) / 7).tolist()
    assert found.groups.tolist() == [f"g{row // 2}" for row in range(40)]
    assert found.strata.tolist() == (np.arange(40) % 2).tolist()
    named = load_embeddings(tmp_path, strata="label" if ending == ".parquet" else "labels")
    assert named.strata.tolist() == found.labels.tolist()
    np.save(tmp_path / "3.npy", ROWS)
    with pytest.raises(FileFormatError, match=rf"3\.npy must have labels, as 0\{ending} does; got none"):
        load_embeddings(tmp_path)


def test_labels_are_of_one_kind(tmp_path):
    save_embeddings(Embeddings(ROWS[:2], labels=[0, 1]), tmp_path / "a.parquet")
    save_embeddings(Embeddings(ROWS[:2], labels=["x", "y"]), tmp_path / "b.safetensors")
    with pytest.raises(FileFormatError, match=r"b\.safetensors must have labels of the same kind as a\.parquet"):
        load_embeddings(tmp_path)
