"""Datasets on disk: their parts, and every fault in one line. Their images: tests/data/test_images.py."""

import json

import pytest
from tests.core.readers.saved import make_table, save_dataset

from ruler.core.errors import FileFormatError, InputError
from ruler.core.readers.datasets import read_dataset, read_records

NOTES = ["The wound has healed very well.", "No drug allergies were noted."]


def test_one_part_is_told_where_it_lies(tmp_path):
    for part in ("train", "test"):
        save_dataset(tmp_path / part, make_table({"text": NOTES}))
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    with pytest.raises(InputError, match=r"got train, test\. Name the folder of one, such as .*train\."):
        read_records(tmp_path, "text")
    assert read_records(tmp_path / "test", "text") == [{"text": note} for note in NOTES]


@pytest.mark.parametrize("name", ["../evil.arrow", "/etc/passwd", "..", "", "a\\b", 7, None])
def test_files_outside_the_folder_are_refused(tmp_path, name):
    (tmp_path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(FileFormatError, match=r"files of .* must lie in it; got"):
        read_dataset(tmp_path)
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [name]}))
    with pytest.raises(FileFormatError, match=r"files of .* must lie in it; got"):
        read_dataset(tmp_path)


def test_broken_files(tmp_path):
    with pytest.raises(FileFormatError, match="must hold a dataset; got neither"):
        read_dataset(tmp_path)
    (tmp_path / "x.parquet").write_bytes(b"no")
    with pytest.raises(FileFormatError, match=r"x\.parquet must be a sound \.parquet file; it cannot be read"):
        read_dataset(tmp_path)
    for content, message in (
        ("{", "must be a sound JSON file"),
        ("[1]", "must hold a JSON object; got list"),
        ('{"_indices_data_files": [{"filename": "i.arrow"}]}', "must hold the rows that it means; got all rows and"),
        ("[" * 100_000, "must be a sound JSON file"),
        ("{}", r"state\.json must list something under _data_files; got None"),
        ('{"_data_files": {"filename": "x"}}', "must list something under _data_files; got {'filename': 'x'}"),
        ('{"_data_files": [5]}', "files of .* must lie in it; got 5"),
        ('{"_data_files": [{"filename": "x.parquet"}]}', r"x\.parquet must be a sound Arrow file; it cannot"),
        ('{"_data_files": [{"filename": "none.arrow"}]}', r"none\.arrow must be a file; got nothing there"),
    ):
        (tmp_path / "state.json").write_text(content)
        with pytest.raises(FileFormatError, match=message):
            read_dataset(tmp_path)
