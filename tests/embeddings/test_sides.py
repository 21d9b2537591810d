"""One model's embeddings in a folder: files or shards per side, with what lies beside them."""

import numpy as np
import pytest

from ruler.core.errors import FileFormatError
from ruler.core.types import Embeddings
from ruler.embeddings import save_embeddings
from ruler.embeddings.sides import load_model_folder

SIZES = {"forget": 4, "retain": 6, "held_out": 5}


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for side, n in SIZES.items():
        np.save(tmp_path / f"{side}.npy", rng.normal(size=(n, 3)))
    return tmp_path


@pytest.mark.parametrize("ending", [".npy", ".npz", ".parquet", ".safetensors", ".pt"])
def test_every_format_is_read(tmp_path, ending):
    for side, n in SIZES.items():
        names = [f"{side} {row}" for row in range(n)]
        save_embeddings(Embeddings(np.eye(n, 3) + 1, names), tmp_path / f"{side}{ending}")
    sides = load_model_folder(str(tmp_path))
    assert [len(rows) for rows in sides] == [4, 6, 5]
    assert sides[2].ids.tolist() == [f"held_out {row}" for row in range(5)]


def test_held_out_records_may_be_missing(folder):
    (folder / "held_out.npy").unlink()
    assert [len(rows) for rows in load_model_folder(folder)] == [4, 6]


def test_a_sub_folder_of_shards_is_a_side(folder):
    whole = np.load(folder / "retain.npy")
    (folder / "retain.npy").unlink()
    (folder / "retain").mkdir()
    for number, part in enumerate(np.array_split(whole, 3)):
        np.save(folder / "retain" / f"{number}.npy", part)
    np.save(folder / "retain_labels.npy", np.arange(6))
    retain = load_model_folder(folder)[1]
    np.testing.assert_array_equal(np.asarray(retain.values[:]), whole)
    assert retain.labels.tolist() == [0, 1, 2, 3, 4, 5]


def test_what_lies_beside_the_rows_travels_with_them(folder):
    beside = {
        "ids": np.array(["a", "b", "c", "d"]),
        "labels": np.array([0, 1, 0, 1]),
        "losses": np.array([0.1, 0.2, 0.3, 0.4]),
        "groups": np.array(["ann", "ann", "bob", "bob"]),
        "strata": np.array([2020, 2021, 2020, 2021]),
        "features": np.ones((4, 2)),
    }
    for name, array in beside.items():
        np.save(folder / f"forget_{name}.npy", array)
    (folder / "README.md").write_text("not looked at")
    forget, retain, _ = load_model_folder(folder)
    for name, array in beside.items():
        np.testing.assert_array_equal(getattr(forget, name), array)
        assert name == "ids" or getattr(retain, name) is None


def test_a_column_may_serve_as_strata(tmp_path):
    for side, n in SIZES.items():
        np.savez(tmp_path / f"{side}.npz", values=np.eye(n, 3) + 1, month=np.arange(n))
    assert load_model_folder(tmp_path, strata="month")[0].strata.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("name", "array", "phrase"),
    [
        ("forget_labels", np.zeros(3), "labels must be one per record, 4 in all"),
        ("forget_losses", np.array([0.0, np.nan, 0, 0]), "losses must be finite"),
        ("forget_losses", np.array(["a"] * 4), "losses must be numbers"),
        ("forget_labels", np.array([{}] * 4, dtype=object), r"must be a sound \.npy file"),
        ("forget_labels", np.ones(4, dtype=complex), "must hold numbers or text; got complex128"),
        ("forget_lables", np.zeros(4), "must be named forget_ and one of ids, labels, .*; got 'lables'"),
        ("forget_ids", np.zeros(4), "ids must be integers or text"),
        ("test", np.ones((5, 3)), None),
    ],
)
def test_bad_files_beside_the_rows_are_refused(folder, name, array, phrase):
    np.save(folder / f"{name}.npy", array, allow_pickle=True)
    if phrase is None:  # a file of another name is not looked at
        assert len(load_model_folder(folder)) == 3
        return
    with pytest.raises(FileFormatError, match=phrase):
        load_model_folder(folder)


def test_a_truncated_file_beside_the_rows_is_refused(folder):
    np.save(folder / "forget_losses.npy", np.ones(4))
    path = folder / "forget_losses.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(FileFormatError, match=r"forget_losses\.npy must be a sound \.npy file"):
        load_model_folder(folder)


def test_ids_are_given_once(folder):
    save_embeddings(Embeddings(np.eye(4, 3), ["a", "b", "c", "d"]), folder / "forget.npy")
    np.save(folder / "forget_ids.npy", np.array(["e", "f", "g", "h"]))
    with pytest.raises(FileFormatError, match=r"must not repeat what forget\.npy holds; both have ids"):
        load_model_folder(folder)


def test_folders_that_are_none_are_told(folder):
    with pytest.raises(FileFormatError, match=r"must be a folder with forget\.\*, .* got nothing there"):
        load_model_folder(folder / "absent")
    with pytest.raises(FileFormatError, match="got a file"):
        load_model_folder(folder / "forget.npy")


def test_a_side_is_there_once(folder):
    np.savez(folder / "retain.npz", values=np.eye(3))
    with pytest.raises(FileFormatError, match=r"must hold the retain records once; got retain\.npy and retain\.npz"):
        load_model_folder(folder)


def test_a_missing_side_is_named(folder):
    (folder / "retain.npy").unlink()
    with pytest.raises(FileFormatError, match=r"must hold retain\.\* .*; got forget\.npy, held_out\.npy\. Name the"):
        load_model_folder(folder)
    (folder / "retain.csv").write_text("1,2")
    with pytest.raises(FileFormatError, match=r"held_out\.npy, retain\.csv\. Save retain\.csv in one of these formats"):
        load_model_folder(folder)


def test_the_old_name_of_held_out_records_is_told(folder):
    (folder / "held_out.npy").rename(folder / "test.npy")
    with pytest.raises(FileFormatError, match=r"as held_out\.\*; got test\. Rename it to held_out"):
        load_model_folder(folder)
