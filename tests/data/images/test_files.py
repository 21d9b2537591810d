import io
import zipfile

import numpy as np
import pytest

from ruler.core.errors import FileFormatError
from ruler.core.readers.arrays import read_npz
from ruler.data.images.files import read_image_file, write_arrays


def _arrays(**changes):
    images = np.zeros((3, 2, 2, 3), np.uint8)
    labels = np.array([0, 2, 1], dtype=np.uint8)
    return {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels} | changes


def test_names_of_classes_come_from_the_file_or_are_numbers(tmp_path):
    path = tmp_path / "deep" / "x.npz"
    write_arrays(path, _arrays())
    parts = read_image_file(path, "x")
    assert (parts.train.classes, parts.train.target.dtype) == (("0", "1", "2"), np.int64)
    assert parts.test.ids.tolist() == ["test/0", "test/1", "test/2"]
    write_arrays(path, _arrays(label_names=np.array(["a", "b", "c"]), note=np.array("mine")))
    parts = read_image_file(path, "x")
    assert (parts.train.classes, parts.train.note) == (("a", "b", "c"), "mine")


def test_array_that_is_absent_or_no_class(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(path, {"train_images": np.zeros(1), "test_images": np.zeros(1)})
    with pytest.raises(
        FileFormatError, match=r"x\.npz must hold the arrays .* got none named train_labels, test_labels"
    ):
        read_image_file(path, "x")


@pytest.mark.parametrize(
    "changes",
    [
        {"train_labels": np.array([0.0, 1.0, 2.0])},
        {"train_labels": np.array(["a", "b", "c"])},
        {"test_labels": np.array([0, 1, 10**12])},
        {"test_labels": np.array(1)},
        {"train_images": np.array(1)},
    ],
)
def test_images_or_labels_of_another_form(tmp_path, changes):
    path = tmp_path / "x.npz"
    write_arrays(path, _arrays(**changes))
    with pytest.raises(FileFormatError, match=r"must hold images .* a whole number below 1,000,000; got shape"):
        read_image_file(path, "x")


def test_a_header_that_promises_more_than_any_memory(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("train_images.npy", header.getvalue())
    with pytest.raises(FileFormatError, match="must hold as many numbers as it claims"):
        read_npz(tmp_path / "bomb.npz")


def test_pickles_and_broken_files_are_refused(tmp_path):
    np.savez(tmp_path / "pickled.npz", train_images=np.array([{"a": 1}], dtype=object))
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04nonsense")
    np.save(tmp_path / "single.npy", np.zeros(2))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    unsound = r"must be a sound \.npz file"
    for name, phrase in (("pickled", "must hold numbers and text only"), ("broken", unsound), ("single", unsound)):
        with pytest.raises(FileFormatError, match=rf"{name}\.npz {phrase}"):
            read_npz(tmp_path / f"{name}.npz")
    with pytest.raises(FileFormatError, match=r"none\.npz must be a file; got nothing there"):
        read_npz(tmp_path / "none.npz")
