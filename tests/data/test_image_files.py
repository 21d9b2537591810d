import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from tests.core.readers.saved import make_table, save_dataset

from ruler.core.errors import FileFormatError, InputError, UnknownNameError
from ruler.core.readers.datasets import is_dataset_folder, read_dataset
from ruler.data import load_images, load_texts
from ruler.data.image_files import read_image_dataset, read_image_folder

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
