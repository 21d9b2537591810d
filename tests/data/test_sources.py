import pandas as pd
import pytest

from ruler.core.errors import InputError, UnknownNameError
from ruler.core.readers.tables import read_table
from ruler.data import DATASETS, ImageSet, TabularSet, locate
from ruler.data.sources import resolve, write_table


def test_written_table_reads_back_unchanged(tmp_path):
    table = pd.DataFrame({"a": [0.1, 1 / 3], "b": ["x, y", None], "c": ['say "hi"', "?"]})
    write_table(table, tmp_path / "deep" / "t.csv.gz")
    pd.testing.assert_frame_equal(read_table(tmp_path / "deep" / "t.csv.gz"), table, check_dtype=False)


def test_locate_looks_into_the_data_folder_before_the_cache(tmp_path, monkeypatch):
    entry = DATASETS["adult"]
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RULER_DATA", raising=False)
    assert locate(entry).place == "to download"
    cached = tmp_path / "cache" / "tabular" / "adult.csv.gz"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert (locate(entry).place, locate(entry).path) == ("cache", cached)
    given = tmp_path / "data" / "tabular" / "adult.csv.gz"
    given.parent.mkdir(parents=True)
    given.touch()
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    assert (locate(entry).place, locate(entry).path) == ("RULER_DATA", given)
    assert locate(entry, root=tmp_path / "elsewhere").place == "cache"
    assert locate(DATASETS["breast_cancer"]).place == "a package"


def test_a_name_a_dataset_or_a_path_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "adult").mkdir()
    assert resolve("svhn", ImageSet) is resolve(DATASETS["svhn"], ImageSet) is DATASETS["svhn"]
    assert str(resolve("adult", ImageSet)) == "adult"  # a table of that name is nothing that could be meant
    assert str(resolve("mine.npz", ImageSet, (".npz",))) == "mine.npz"
    assert resolve(tmp_path, ImageSet) == tmp_path
    with pytest.raises(
        InputError, match=r"lfw must be of kind images to be loaded here; got kind faces\. load_dataset"
    ):
        resolve("lfw", ImageSet)
    with pytest.raises(InputError, match="adult must be of kind images to be loaded here; got kind table"):
        resolve(DATASETS["adult"], ImageSet)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'phoneme'\? There is no file or folder of that name"):
        resolve("phonemes", TabularSet)
