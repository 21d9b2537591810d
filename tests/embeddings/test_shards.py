import numpy as np
import pytest

from ruler.core.errors import FileFormatError
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
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({f"c{i}": ROWS[:, i] for i in range(5)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    found = load_embeddings(tmp_path).values
    (tmp_path / "a.parquet").unlink()
    np.testing.assert_array_equal(found[:], ROWS)
    assert isinstance(found.parts[0], np.memmap)


def test_lists_of_changing_length_are_refused(tmp_path):
    import pyarrow
    import pyarrow.parquet

    lists = [[1.0, 2.0]] * 9000 + [[1.0, 2.0, 3.0]] * 8192
    pyarrow.parquet.write_table(pyarrow.table({"embedding": lists}), tmp_path / "a.parquet")
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
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must name its rows, as rows-1\.npy does"):
        load_embeddings(tmp_path)
    np.save(tmp_path / "rows-0.ids.npy", np.arange(3))
    with pytest.raises(FileFormatError, match=r"rows-0\.npy must have one id a row; got \(3,\) for 20 rows"):
        load_embeddings(tmp_path)


def test_vectors_one_number_deep_are_no_shard(tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    with pytest.raises(FileFormatError, match=r"a\.npy must be 2-D with at least one row; got shape \(3,\)"):
        load_embeddings(tmp_path)
