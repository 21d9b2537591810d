import io
import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from tests.core.readers.saved import make_table, save_dataset

from ruler.core.errors import DataMismatchError, FileFormatError, InputError, UnknownNameError
from ruler.core.readers.datasets import is_dataset_folder, read_dataset
from ruler.data import DATASETS, FaceSet, ImageSet, list_datasets, load_faces, load_images, load_texts
from ruler.data.images import read_image_dataset, read_image_folder, write_arrays


@pytest.fixture
def folder(tmp_path, image_bytes):
    root = tmp_path / "pets"
    for name, n_images in (("dog", 6), ("cat", 4)):
        (root / name).mkdir(parents=True)
        for number in range(n_images):
            (root / name / f"{number}.png").write_bytes(image_bytes(seed=number))
    return root


@pytest.mark.parametrize("key", list_datasets("images"))
def test_published_set_loads_verified(real_data, key):
    entry = DATASETS[key]
    parts = load_images(key, root=real_data)
    assert parts.train.images.shape == (entry.n_train, *entry.image_shape)
    assert parts.test.images.shape == (entry.n_test, *entry.image_shape)
    assert parts.train.images.dtype == np.uint8
    assert parts.train.classes == parts.test.classes == entry.classes
    assert set(parts.train.target) == set(parts.test.target) == set(range(len(entry.classes)))
    assert parts.train.note == entry.note
    assert set(parts.train.ids).isdisjoint(parts.test.ids)
    assert len(set(parts.train.ids)) == entry.n_train


def test_the_first_cifar10_image_is_the_frog(real_data):
    train = load_images("cifar10", root=real_data).train
    assert train.classes[train.target[0]] == "frog"
    assert train.images[0, 0, 0].tolist() == [59, 62, 63]  # the first pixel of the official data_batch_1


def test_another_version_is_refused(tmp_path):
    (tmp_path / "images").mkdir()
    images, labels = np.zeros((4, 32, 32, 3), np.uint8), np.arange(4)
    arrays = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    np.savez(tmp_path / "images" / "cifar10.npz", **arrays)
    with pytest.raises(
        DataMismatchError, match=r"CIFAR-10 must be the copy .* Load it by its path as data of your own"
    ):
        load_images("cifar10", root=tmp_path)
    assert len(load_images(tmp_path / "images" / "cifar10.npz").train) == 4


def test_images_and_faces_of_ones_own_are_read_by_their_function(folder, tmp_path):
    parts = load_images(folder, test_fraction=0.5)
    own = ImageSet(key="pets", title="Pets", image_shape=(4, 4, 3), n_train=5, n_test=5, read=lambda: parts)
    assert load_images(own).content_hash == parts.content_hash
    assert (own.size, own.n_records, own.file) == ("5 + 5 of 4 x 4", 5, None)
    faces = load_faces(folder)
    people = FaceSet(key="two", title="Two", image_shape=(4, 4, 3), n_images=10, n_people=2, read=lambda: faces)
    assert load_faces(people).content_hash == faces.content_hash
    for wrong, load in ((own, load_images), (people, load_faces)):
        with pytest.raises(DataMismatchError, match=r"got another from a package of yours .* instead of abc"):
            load(replace(wrong, content_hash="abc"))


def test_folder_is_split_by_class(folder):
    parts = load_images(folder, test_fraction=0.5)
    assert parts.train.classes == ("cat", "dog")
    assert np.bincount(parts.train.target).tolist() == np.bincount(parts.test.target).tolist() == [2, 3]
    assert sorted([*parts.train.ids, *parts.test.ids]) == sorted(
        p.relative_to(folder).as_posix() for p in folder.rglob("*.png")
    )
    again = load_images(str(folder), test_fraction=0.5)
    assert again.content_hash == parts.content_hash
    assert load_images(folder, test_fraction=0.5, seed=1).content_hash != parts.content_hash


def test_name_of_a_folder_here_needs_no_slash_and_a_published_name_wins(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder.parent)
    assert load_images("pets", test_fraction=0.5).train.name == "pets"
    (folder.parent / "svhn").mkdir()
    with pytest.raises(
        UnknownNameError,
        match=r"images dataset must be one of cifar10, cifar100, svhn; got 'pests'\. There is no file or folder",
    ):
        load_images("pests")
    with pytest.raises(InputError, match=r"path must be an existing file or folder; got 'pests'\. Check the spelling"):
        load_images("./pests", image_size=(2, 2))


def test_parts_named_train_and_test_are_kept(tmp_path, folder):
    both = tmp_path / "both"
    both.mkdir()
    for part in ("train", "test"):
        (both / part).symlink_to(folder)
    (folder / "dog" / "0.png").unlink()
    parts = load_images(both)
    assert len(parts.train) == len(parts.test) == 9


@pytest.mark.parametrize("names", [("Train", "TEST"), ("training", "testing")])
def test_parts_may_be_spelt_in_other_ways(tmp_path, folder, names):
    (tmp_path / "both").mkdir()
    for name in names:
        (tmp_path / "both" / name).symlink_to(folder)
    parts = load_images(tmp_path / "both")
    assert (len(parts.train), len(parts.test), parts.train.classes) == (10, 10, ("cat", "dog"))
    assert (parts.train.name, parts.test.name) == names


def test_one_part_alone_is_split(tmp_path, folder):
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "train").symlink_to(folder)
    assert load_images(tmp_path / "whole").content_hash == load_images(folder).content_hash


@pytest.mark.parametrize(
    "names",
    [("train", "val"), ("test", "train", "val"), ("train", "training"), ("dev", "valid"), ("bus", "test", "train")],
)
def test_no_part_is_taken_for_a_class_or_dropped(tmp_path, folder, names):
    (tmp_path / "parts").mkdir()
    for name in names:
        (tmp_path / "parts" / name).symlink_to(folder)
    with pytest.raises(
        InputError, match=f"must be train and test, or one alone; got {', '.join(names)}. Rename, merge or remove"
    ):
        load_images(tmp_path / "parts")


def test_a_part_without_classes_is_told(tmp_path, folder):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "test").symlink_to(folder)
    (tmp_path / "parts" / "train").symlink_to(folder / "cat")
    with pytest.raises(InputError, match="train must have at least two subfolders, one per class; got 0"):
        load_images(tmp_path / "parts")


def test_a_class_may_be_named_as_a_part(folder):
    (folder / "dog").rename(folder / "train")
    assert load_images(folder, test_fraction=0.5).train.classes == ("cat", "train")


def test_parts_with_other_classes_are_refused(tmp_path, folder, image_bytes):
    both = tmp_path / "both"
    (both / "train").mkdir(parents=True)
    (both / "test").symlink_to(folder)
    for name in ("cat", "cow"):
        (both / "train" / name).mkdir()
        (both / "train" / name / "a.png").write_bytes(image_bytes())
    with pytest.raises(InputError, match=r"must have the same classes and image size; got 2 classes of .* and 2 of"):
        load_images(both)


def test_image_size_is_for_folders_alone(folder, tmp_path):
    assert load_images(folder, test_fraction=0.5, image_size=(2, 3)).train.images.shape == (5, 2, 3, 3)
    with pytest.raises(
        InputError, match=r"image_size must be omitted for a dataset with a name; got \(8, 8\) for 'svhn'"
    ):
        load_images("svhn", image_size=(8, 8))
    (tmp_path / "x.npz").touch()
    with pytest.raises(InputError, match=r"image_size must be omitted for an \.npz file; got \(8, 8\)"):
        load_images(tmp_path / "x.npz", image_size=(8, 8))


@pytest.mark.parametrize("image_size", [(0, 5), (5, -1), (4,), (4, 4, 3), 8, (8.5, 8), (True, 8), "88", ("8", "8")])
def test_image_size_is_a_height_and_a_width(folder, tmp_path, image_size):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train-0.parquet").touch()
    for path in (folder, tmp_path / "set"):
        with pytest.raises(
            InputError, match=r"image_size must be height and width, two whole numbers of at least 1; got .* Give \(32"
        ):
            load_images(path, image_size=image_size)


def test_image_size_may_come_in_any_row(folder):
    for image_size in ([2, 3], np.array([2, 3])):
        assert load_images(folder, test_fraction=0.5, image_size=image_size).test.images.shape == (5, 2, 3, 3)


def test_dataset_with_unknown_parts(tmp_path, image_bytes):
    import pyarrow as pa
    import pyarrow.parquet

    def save(content, parts=("validation", "extra")):
        for part in parts:
            table = pa.table({"image": [content, content], "label": [0, 1]})
            pyarrow.parquet.write_table(table, tmp_path / f"{part}-0.parquet")

    save(b"")
    with pytest.raises(FileFormatError, match="must be a PNG or JPEG image"):
        load_images(tmp_path)
    save(image_bytes())
    with pytest.raises(InputError, match="parts must be train and test, or one alone; got extra, validation"):
        load_images(tmp_path)
    for path in tmp_path.iterdir():
        path.unlink()
    save(image_bytes(), ("train", "test", "validation"))
    with pytest.raises(InputError, match=r"one alone; got test, train, validation\. Rename, merge or remove parts"):
        load_images(tmp_path)


def _arrays(**changes):
    images = np.zeros((3, 2, 2, 3), np.uint8)
    labels = np.array([0, 2, 1], dtype=np.uint8)
    return {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels} | changes


def test_names_of_classes_come_from_the_file_or_are_numbers(tmp_path):
    path = tmp_path / "deep" / "x.npz"
    write_arrays(path, _arrays())
    parts = load_images(path)
    assert (parts.train.classes, parts.train.target.dtype) == (("0", "1", "2"), np.int64)
    assert parts.test.ids.tolist() == ["test/0", "test/1", "test/2"]
    write_arrays(path, _arrays(label_names=np.array(["a", "b", "c"]), note=np.array("mine")))
    parts = load_images(path)
    assert (parts.train.classes, parts.train.note) == (("a", "b", "c"), "mine")


def test_array_that_is_absent_or_no_class(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(path, {"train_images": np.zeros(1), "test_images": np.zeros(1)})
    with pytest.raises(
        FileFormatError, match=r"x\.npz must hold the arrays .* got none named train_labels, test_labels"
    ):
        load_images(path)


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
        load_images(path)


LABELLED = {"image": {"_type": "Image"}, "label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
NOTES = ["The wound has healed very well.", "No drug allergies were noted."]
PIXELS = np.random.default_rng(1).integers(0, 256, (3, 5, 3), dtype=np.uint8)


def _png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _fill(folder, files):
    for name, pixels in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(_png(pixels))


def test_folder_is_read_in_sorted_order(tmp_path):
    _fill(tmp_path, {"b/2.png": PIXELS, "b/deep/1.PNG": PIXELS + 1, "a/x.png": PIXELS + 2, ".hidden/y.png": PIXELS})
    (tmp_path / "a" / "labels.txt").write_text("not an image")
    (tmp_path / "a" / "._x.png").write_text("left by a file manager")
    (tmp_path / "readme.txt").touch()
    data = read_image_folder(tmp_path)
    assert data.ids.tolist() == ["a/x.png", "b/2.png", "b/deep/1.PNG"]
    assert (data.target.tolist(), data.classes) == ([0, 1, 1], ("a", "b"))
    np.testing.assert_array_equal(data.images, [PIXELS + 2, PIXELS, PIXELS + 1])


def test_mixed_sizes_are_an_error_or_resized(tmp_path):
    _fill(tmp_path, {"a/x.png": PIXELS, "b/y.png": PIXELS[:2]})
    with pytest.raises(
        InputError, match=r"got 3 x 5 \(a/x\.png\) and 2 x 5 \(b/y\.png\)\. Give image_size=\(height, width\)"
    ):
        read_image_folder(tmp_path)
    assert read_image_folder(tmp_path, (3, 5)).images.shape == (2, 3, 5, 3)


def test_folders_without_classes_or_images(tmp_path):
    with pytest.raises(InputError, match=r"path must be an existing folder; got .*none"):
        read_image_folder(tmp_path / "none")
    _fill(tmp_path, {"a/x.png": PIXELS})
    with pytest.raises(InputError, match="must have at least two subfolders, one per class; got 1"):
        read_image_folder(tmp_path)
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match=r"b must hold at least one image \(\.png, \.jpg, \.jpeg\); got none"):
        read_image_folder(tmp_path)


@pytest.fixture
def images(image_bytes):
    def make(n_images, **changes):
        cells = [{"bytes": image_bytes(seed=number), "path": None} for number in range(n_images)]
        return make_table({"image": cells, "label": [number % 2 for number in range(n_images)]} | changes, LABELLED)

    return make


def test_dataset_in_one_part_is_read_from_all_its_files_and_split(tmp_path, images):
    save_dataset(tmp_path, images(4), images(6), split="train")
    whole = read_image_dataset(tmp_path)["train"]
    assert whole.images.shape == (10, 4, 4, 3)
    assert (whole.classes, whole.target.tolist()) == (("cat", "dog"), [0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    parts = load_images(tmp_path, test_fraction=0.4)
    assert (len(parts.train), len(parts.test)) == (6, 4)


def test_dict_of_parts_keeps_them(tmp_path, images):
    save_dataset(tmp_path / "train", images(6))
    save_dataset(tmp_path / "test", images(2))
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    parts = load_images(tmp_path, image_size=(2, 3))
    assert (parts.train.images.shape, parts.test.images.shape) == ((6, 2, 3, 3), (2, 2, 3, 3))


def test_parquet_files_of_the_hub(tmp_path, images):
    (tmp_path / "data").mkdir()
    for name, n_images in (("train-00000-of-00002", 4), ("train-00001-of-00002", 2), ("test-00000-of-00001", 2)):
        pyarrow.parquet.write_table(images(n_images), tmp_path / "data" / f"{name}.parquet")
    assert is_dataset_folder(tmp_path)
    parts = load_images(tmp_path)
    assert (len(parts.train), len(parts.test), parts.train.classes) == (6, 2, ("cat", "dog"))


@pytest.fixture
def written():
    """Six images of two classes, as the package makes them, and their pixels."""
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 3, 3, 3), dtype=np.uint8)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    columns = {"image": list(pixels), "label": [0, 1, 0, 1, 1, 1]}
    return datasets, datasets.Dataset.from_dict(columns, features=features), pixels


def test_reads_what_datasets_writes(tmp_path, written):
    _, made, pixels = written
    made.save_to_disk(tmp_path / "d")
    found = read_image_dataset(tmp_path / "d")["all"]
    np.testing.assert_array_equal(found.images, pixels)
    assert (found.classes, found.target.tolist()) == (("a", "b"), [0, 1, 0, 1, 1, 1])


def test_reads_what_datasets_writes_in_shards_or_after_a_choice_of_rows(tmp_path, written):
    _, made, pixels = written
    made.save_to_disk(tmp_path / "shards", num_shards=3)
    np.testing.assert_array_equal(read_image_dataset(tmp_path / "shards")["all"].images, pixels)
    made.select([4, 0, 2]).save_to_disk(tmp_path / "chosen")
    np.testing.assert_array_equal(read_image_dataset(tmp_path / "chosen")["all"].images, pixels[[4, 0, 2]])


def test_reads_what_datasets_writes_as_splits_and_as_parquet(tmp_path, written):
    datasets, made, pixels = written
    datasets.DatasetDict({"train": made, "test": made.select([1, 0])}).save_to_disk(tmp_path / "splits")
    parts = load_images(tmp_path / "splits")
    np.testing.assert_array_equal(parts.train.images, pixels)
    np.testing.assert_array_equal(parts.test.images, pixels[[1, 0]])
    (tmp_path / "hub").mkdir()
    made.to_parquet(tmp_path / "hub" / "train-00000-of-00001.parquet")
    np.testing.assert_array_equal(read_image_dataset(tmp_path / "hub")["train"].images, pixels)


@pytest.mark.parametrize(
    ("columns", "features", "target"),
    [
        ({"label": ["y", "x", "y"]}, {}, [1, 0, 1]),
        ({"label": [5, 5, 3]}, {}, [1, 1, 0]),
        ({"kind": [0, 1, 1]}, {"kind": {"names": ["p", "q"], "_type": "ClassLabel"}}, [0, 1, 1]),
    ],
)
def test_labels_in_every_form(tmp_path, image_bytes, columns, features, target):
    cells = [image_bytes(seed=number) for number in range(3)]  # bare bytes are an image too
    save_dataset(tmp_path, make_table({"image": cells} | columns, features))
    assert read_image_dataset(tmp_path)["all"].target.tolist() == target


def test_columns_that_cannot_be_told_apart(tmp_path, image_bytes):
    kinds = {"fine": {"names": ["a"], "_type": "ClassLabel"}, "coarse": {"names": ["a"], "_type": "ClassLabel"}}
    save_dataset(tmp_path, make_table({"image": [image_bytes()], "fine": [0], "coarse": [0]}, kinds))
    with pytest.raises(
        InputError, match="one column 'label' or of type ClassLabel; got fine, coarse among image, fine"
    ):
        read_image_dataset(tmp_path)
    save_dataset(tmp_path, make_table({"photo": [image_bytes()], "label": [0]}))
    with pytest.raises(InputError, match="one column 'image' or of type Image; got none among photo, label"):
        read_image_dataset(tmp_path)


def test_paths_to_files_elsewhere_are_not_followed(tmp_path, images):
    cells = pa.array(
        [{"bytes": None, "path": "/etc/passwd"}], pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )
    save_dataset(tmp_path, images(1, image=cells))
    with pytest.raises(
        InputError, match=r"/all/0 must hold the image itself; got a path\. Save the dataset with its images"
    ):
        read_image_dataset(tmp_path)


def test_texts_of_all_parts(tmp_path):
    save_dataset(tmp_path / "train", make_table({"text": [NOTES[0], NOTES[1]]}))
    save_dataset(tmp_path / "test", make_table({"text": [NOTES[1], None]}))
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    texts = load_texts(tmp_path, column="text")
    assert (texts.sentences, texts.n_documents) == (tuple(NOTES), 2)
    assert load_texts(tmp_path, column="text", by="row").n_documents == 3
    with pytest.raises(InputError, match=r"column must name the texts; got None\. .* has text"):
        load_texts(tmp_path)
    with pytest.raises(UnknownNameError, match="Did you mean 'text'"):
        load_texts(tmp_path, column="texts")


@pytest.mark.parametrize("notes", ["{not json", "[1]", '{"info": {"features": [1]}}', '{"info": null}', "[" * 100_000])
def test_notes_that_cannot_be_read_leave_a_table(tmp_path, image_bytes, notes):
    table = pa.table({"image": [image_bytes(), image_bytes()], "label": ["a", "b"]})
    save_dataset(tmp_path, table.replace_schema_metadata({"huggingface": notes}))
    assert read_image_dataset(tmp_path)["all"].classes == ("a", "b")


@pytest.mark.parametrize("labels", [[0, None], [0.5, 1.0]])
def test_labels_that_are_no_classes_are_not_rounded_to_one(tmp_path, images, labels):
    save_dataset(tmp_path, images(2, label=labels))
    with pytest.raises(InputError, match="target column 'label' must"):
        read_image_dataset(tmp_path)


def test_parts_that_do_not_fit_together(tmp_path, images):
    save_dataset(tmp_path / "a", images(2), images(2).rename_columns(["image", "kind"]))
    with pytest.raises(FileFormatError, match=r"files of .*a must all have the same columns; got others"):
        read_dataset(tmp_path / "a")
    for name in ("train-0", "train-1"):
        pyarrow.parquet.write_table(pa.table({name: [1]}), tmp_path / f"{name}.parquet")
    with pytest.raises(FileFormatError, match="must all have the same columns; got others"):
        read_dataset(tmp_path)
    save_dataset(tmp_path / "b" / "train", make_table({"text": NOTES}))
    save_dataset(tmp_path / "b" / "test", make_table({"note": NOTES}))
    (tmp_path / "b" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(FileFormatError, match="must all have the same columns; got others"):
        load_texts(tmp_path / "b", column="text")
    (tmp_path / "b" / "dataset_dict.json").write_text('{"splits": []}')
    with pytest.raises(FileFormatError, match=r"must list something under splits; got \[\]"):
        load_texts(tmp_path / "b", column="text")
    save_dataset(tmp_path / "c", images(2).slice(0, 0))
    with pytest.raises(InputError, match="must have rows, and columns of different names; got 0 rows"):
        read_image_dataset(tmp_path / "c")
