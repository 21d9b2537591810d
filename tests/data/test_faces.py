import json

import numpy as np
import pytest

from ruler.core.errors import DataMismatchError, FileFormatError, InputError, UnknownNameError
from ruler.data import DATASETS, load_faces, partition_groups


def test_lfw(real_data):
    faces = load_faces(root=real_data)
    assert faces.images.shape == (4324, 62, 47, 3)
    assert np.bincount(faces.target).tolist() == [650, 3674]
    people, sizes = np.unique(faces.groups, return_counts=True)
    assert (len(people), sizes.min(), people[sizes.argmax()], sizes.max()) == (158, 10, "George W Bush", 530)
    assert all(len(set(faces.target[faces.groups == person])) == 1 for person in people)
    assert len(set(faces.ids.tolist())) == 4324
    assert faces.note == DATASETS["lfw"].note


@pytest.mark.parametrize("choice", ["random", "most_frequent", "single"])
def test_no_person_is_forgotten_and_retained(real_data, choice):
    groups = load_faces(root=real_data).groups
    partition = partition_groups(groups, fraction=0.05, choice=choice)
    assert set(groups[partition.forget]).isdisjoint(groups[partition.retain])


@pytest.fixture
def people(tmp_path, image_bytes):
    root = tmp_path / "people"
    for name in ("ann", "bob", "cy"):
        (root / name).mkdir(parents=True)
        for number in range(2):
            (root / name / f"{number}.jpg").write_bytes(image_bytes(form="JPEG", seed=number))
    return root


def test_own_folder_predicts_the_person_unless_labels_say_else(people, tmp_path):
    faces = load_faces(people)
    assert faces.groups.tolist() == ["ann", "ann", "bob", "bob", "cy", "cy"]
    assert (faces.target.tolist(), faces.classes) == ([0, 0, 1, 1, 2, 2], ("ann", "bob", "cy"))
    (tmp_path / "ages.csv").write_text("who,age\ncy,old\nbob,young\nann,old\n")
    faces = load_faces(people, labels=tmp_path / "ages.csv", image_size=(2, 2))
    assert (faces.target.tolist(), faces.classes) == ([0, 0, 1, 1, 0, 0], ("old", "young"))
    assert faces.images.shape == (6, 2, 2, 3)


def test_parts_are_not_taken_for_people(people):
    for part in ("test", "Train"):
        (people.parent / "parts" / part).mkdir(parents=True)
        for person in people.iterdir():
            (people.parent / "parts" / part / person.name).symlink_to(person)
    with pytest.raises(
        InputError,
        match=r"must hold one part of a dataset; got Train, test\. Name the folder of one, such as .*parts/Train\.",
    ):
        load_faces(people.parent / "parts")
    (people.parent / "parts" / "test").rename(people.parent / "elsewhere")
    assert set(load_faces(people.parent / "parts").groups) == {"ann", "bob", "cy"}


def test_own_dataset_is_labelled_by_person(tmp_path, image_bytes):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    features = {"person": {"_type": "ClassLabel", "names": ["cy", "ann", "nobody"]}}
    notes = {"huggingface": json.dumps({"info": {"features": features}})}
    cells = [image_bytes(seed=number) for number in range(3)]
    table = pyarrow.table({"image": cells, "person": [1, 0, 1]}).replace_schema_metadata(notes)
    folder = tmp_path / "faces"
    folder.mkdir()
    parquet.write_table(table, folder / "train-0.parquet")
    faces = load_faces(folder)
    assert (faces.groups.tolist(), faces.target.tolist()) == (["ann", "cy", "ann"], [1, 0, 1])
    (tmp_path / "ages.csv").write_text("who,age\ncy,old\nann,young\n")
    assert load_faces(folder, labels=tmp_path / "ages.csv").target.tolist() == [1, 0, 1]
    parquet.write_table(table, folder / "test-0.parquet")
    with pytest.raises(InputError, match="faces must hold one part of a dataset; got test, train"):
        load_faces(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("who,age\nann,old\n", "must have a label for every person; got none for 2, such as 'bob'"),
        ("who\nann\n", "must have two columns, person and label; got 1"),
        ("who,age\nann,old\nbob,\ncy,old\n", "must have a label in every row; got 1 rows without"),
    ],
)
def test_labels_that_do_not_fit(people, tmp_path, content, message):
    (tmp_path / "l.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        load_faces(people, labels=tmp_path / "l.csv")


def _arrays(**changes):
    fields = {
        "images": np.zeros((4, 2, 2, 3), np.uint8),
        "identity": np.array([1, 0, 1, 0]),
        "names": np.array(["ann", "bob"]),
        "gender": np.array([1, 0, 1, 0]),
    }
    return {name: value for name, value in (fields | changes).items() if value is not None}


def test_own_file(tmp_path):
    np.savez(tmp_path / "f.npz", **_arrays())
    faces = load_faces(tmp_path / "f.npz")
    assert faces.ids.tolist() == ["bob/0", "ann/0", "bob/1", "ann/1"]
    assert faces.target.tolist() == [1, 0, 1, 0]
    for changes, message in (
        ({"identity": np.array([1, 0, 2, 0])}, r"identity in .*f\.npz must be rows of names, one per image; got int64"),
        (
            {"identity": np.array([[1], [0], [1], [0]])},
            r"must be rows of names, one per image; got int64 of shape \(4, 1",
        ),
        ({"names": np.array("ann")}, r"must be rows of names, one per image; .* for names of shape \(\)"),
        ({"gender": np.array(list("mfmf"))}, "and gender as 0 or 1; got shape .* and <U1"),
        ({"images": np.array(1)}, r"must hold images \(n, height, width, channels\) .* got shape \(\)"),
    ):
        np.savez(tmp_path / "f.npz", **_arrays(**changes))
        with pytest.raises(FileFormatError, match=message):
            load_faces(tmp_path / "f.npz")
    np.savez(tmp_path / "f.npz", **_arrays(names=None))
    with pytest.raises(FileFormatError, match="must hold the arrays images, identity, names; got none named names"):
        load_faces(tmp_path / "f.npz")


def test_labels_twice_or_never(tmp_path):
    np.savez(tmp_path / "f.npz", **_arrays())
    with pytest.raises(InputError, match=r"labels must be omitted: the file has a gender; got 'l\.csv' for 'f\.npz'"):
        load_faces(tmp_path / "f.npz", labels="l.csv")
    np.savez(tmp_path / "f.npz", **_arrays(gender=None))
    with pytest.raises(InputError, match=r"labels must be given: the file has no gender; got None for 'f\.npz'"):
        load_faces(tmp_path / "f.npz")


def test_image_size_is_for_folders_alone(tmp_path):
    with pytest.raises(
        InputError, match=r"image_size must be omitted for a dataset with a name; got \(8, 8\) for 'lfw'"
    ):
        load_faces("lfw", image_size=(8, 8))
    (tmp_path / "f.npz").touch()
    with pytest.raises(InputError, match=r"image_size must be omitted for an \.npz file; got \(8, 8\)"):
        load_faces(tmp_path / "f.npz", image_size=(8, 8))


def test_another_version_and_another_name(tmp_path):
    (tmp_path / "images").mkdir()
    for changes in ({}, {"gender": None}, {"gender": None, "note": np.array("mine")}):
        np.savez(tmp_path / "images" / "lfw.npz", **_arrays(**changes))
        with pytest.raises(DataMismatchError, match=r"LFW must be the copy .* instead of 227cd7ef2238\)"):
            load_faces(root=tmp_path)
    with pytest.raises(UnknownNameError, match=r"one of lfw; got 'celeba'\. There is no file or folder of that name"):
        load_faces("celeba")
    with pytest.raises(InputError, match="path must be an existing file or folder; got 'celeba'"):
        load_faces("./celeba")
