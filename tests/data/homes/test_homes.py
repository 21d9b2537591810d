"""Each home, played by a local server that hands out small files in the published form."""

import dataclasses
import gzip
import hashlib
import io
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from ruler.core.errors import DataMismatchError, DownloadError, FileFormatError, InputError
from ruler.data import (
    FACE_SETS,
    IMAGE_SETS,
    check_gender,
    fetch_faces,
    fetch_images,
    fetch_tabular,
    load_faces,
    load_images,
)
from ruler.data.homes import cifar, covertype, lfw, svhn
from ruler.data.homes.cifar import download_cifar, parse_batch
from ruler.data.homes.covertype import COVERTYPE_COLUMNS, download_covertype
from ruler.data.homes.download import RemoteFile
from ruler.data.homes.lfw import download_lfw
from ruler.data.homes.svhn import download_svhn, read_digits
from ruler.data.tables.large_sets import LARGE_SETS


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "nothing"))
    return tmp_path / "cache"


@pytest.fixture
def remote(serve):
    def publish(content):
        url = serve({"/file": (content, {"Content-Length": str(len(content))})})
        return RemoteFile(f"{url}/file", "sha256", hashlib.sha256(content).hexdigest(), len(content))

    return publish


def _tar(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def _batch(images, *labels):
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([*(np.array(column, dtype=np.uint8)[:, None] for column in labels), planes], axis=1).tobytes()


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)


def test_cifar10_is_read_from_the_binary_batches(remote, monkeypatch, pixels):
    train, test = cifar._MEMBERS["cifar10"]
    content = _tar({train: _batch(pixels, [3, 1, 4, 1, 5]), test: _batch(pixels[::-1], [9, 2, 6, 5, 3])})
    monkeypatch.setitem(cifar._ARCHIVES, "cifar10", remote(content))
    entry = dataclasses.replace(IMAGE_SETS["cifar10"], n_train=4, n_test=2)
    found = download_cifar(entry)
    np.testing.assert_array_equal(found["train_images"], pixels[:4])
    np.testing.assert_array_equal(found["test_images"], pixels[:2:-1])
    assert found["train_labels"].tolist() == [3, 1, 4, 1]
    assert found["test_labels"].tolist() == [9, 2]


def test_cifar100_takes_the_fine_label(remote, monkeypatch, pixels):
    train, test = cifar._MEMBERS["cifar100"]
    batch = _batch(pixels, [1, 2, 3, 4, 5], [91, 92, 93, 94, 95])
    monkeypatch.setitem(cifar._ARCHIVES, "cifar100", remote(_tar({train: batch, test: batch})))
    entry = dataclasses.replace(IMAGE_SETS["cifar100"], n_train=5, n_test=1)
    found = download_cifar(entry)
    assert found["train_labels"].tolist() == [91, 92, 93, 94, 95]
    np.testing.assert_array_equal(found["train_images"], pixels)


@pytest.mark.slow
def test_cifar10_as_published_is_the_content_measured_here(real_data, remote, monkeypatch, cache):
    """The file here, dressed as the authors' archive, comes back with the pinned hash and without a mark."""
    ours = load_images("cifar10", root=real_data)
    names = cifar._MEMBERS["cifar10"]
    parts = ours.train, ours.test
    batches = {name: _batch(part.images, part.target) for name, part in zip(names, parts, strict=True)}
    monkeypatch.setitem(cifar._ARCHIVES, "cifar10", remote(_tar(batches)))
    assert load_images("cifar10").content_hash == IMAGE_SETS["cifar10"].content_hash
    assert (cache / "images" / "cifar10.npz").is_file()


def test_other_images_in_the_place_of_cifar10_are_not_kept(remote, monkeypatch, cache, pixels):
    content = _tar({name: _batch(pixels, [3, 1, 4, 1, 5]) for name in cifar._MEMBERS["cifar10"]})
    monkeypatch.setitem(cifar._ARCHIVES, "cifar10", remote(content))
    monkeypatch.setitem(IMAGE_SETS._entries, "cifar10", dataclasses.replace(IMAGE_SETS["cifar10"], n_train=5, n_test=5))
    with pytest.raises(DataMismatchError, match=r"CIFAR-10 must be the copy .* got another from www\.cs\.toronto\.edu"):
        fetch_images("cifar10")
    assert not (cache / "images").exists()


def test_short_batch():
    with pytest.raises(FileFormatError, match="batch must hold 3 images; got 7 bytes"):
        parse_batch(b"1234567", 3)


def _matlab(images, labels):
    buffer = io.BytesIO()
    savemat(buffer, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, dtype=np.uint8)[:, None]})
    return buffer.getvalue()


def test_svhn_says_zero_for_ten_and_is_marked_as_another_draw(remote, monkeypatch, pixels):
    monkeypatch.setitem(svhn._FILES, "train", remote(_matlab(pixels, [10, 1, 2, 10, 9])))
    monkeypatch.setitem(svhn._FILES, "test", remote(_matlab(pixels[::-1], [5, 4, 3, 2, 10])))
    small = dataclasses.replace(IMAGE_SETS["svhn"], n_train=5, n_test=2)
    found = download_svhn(small)
    assert found["train_labels"].tolist() == [0, 1, 2, 0, 9]
    np.testing.assert_array_equal(found["test_images"], pixels[:2:-1])
    monkeypatch.setitem(IMAGE_SETS._entries, "svhn", small)
    loaded = load_images("svhn")
    assert loaded.train.note == loaded.test.note == small.home_note
    assert "not the digits that this project measured" in loaded.train.note
    assert loaded.content_hash != small.content_hash


def test_an_unmarked_file_of_other_images_is_refused(cache, pixels):
    (cache / "images").mkdir(parents=True)
    labels = np.arange(5)
    arrays = {"train_images": pixels, "train_labels": labels, "test_images": pixels, "test_labels": labels}
    np.savez(cache / "images" / "svhn.npz", **arrays)
    with pytest.raises(DataMismatchError, match=r"SVHN must be .*\(content: \w{12} instead of 4461d8f8299b\)"):
        load_images("svhn")


@pytest.mark.parametrize("content", [b"not matlab", _matlab(np.zeros((2, 32, 32, 3), np.uint8), [1, 2])])
def test_svhn_in_another_form(tmp_path, content):
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"must be a MATLAB file with X and y|X must be 32 x 32 x 3 x at least 3"):
        read_digits(tmp_path / "x.mat", 3)


@pytest.fixture
def lfw_home(remote, monkeypatch, image_bytes):
    """Two people with ten photos, and one with too few."""
    counts = {"Zoe_Zed": 11, "Ann_Lee": 10, "Bob_Few": 3}
    members = {
        f"lfw_funneled/{person}/{person}_{number + 1:04d}.jpg": image_bytes(250, 250, "JPEG", seed=number)
        for person, n_images in counts.items()
        for number in range(n_images)
    }
    monkeypatch.setattr(lfw, "_ARCHIVE", remote(_tar({**members, "lfw_funneled/../../evil.jpg": b"x"})))
    small = dataclasses.replace(FACE_SETS["lfw"], n_images=21, n_people=2)
    monkeypatch.setitem(FACE_SETS._entries, "lfw", small)
    return small


def test_lfw_brings_people_but_no_gender(lfw_home, cache, tmp_path):
    found = download_lfw(lfw_home)
    assert found["images"].shape == (21, 62, 47, 3)
    assert found["names"].tolist() == ["Ann Lee", "Zoe Zed"]
    assert np.bincount(found["identity"]).tolist() == [10, 11]
    with pytest.raises(InputError, match="labels must be given: no gender comes with it; got None for 'lfw'"):
        load_faces("lfw")
    (tmp_path / "gender.csv").write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    faces = load_faces("lfw", labels=tmp_path / "gender.csv")
    assert (faces.classes, np.bincount(faces.target).tolist()) == (("female", "male"), [10, 11])
    assert set(faces.groups[faces.target == 0]) == {"Ann Lee"}
    assert faces.note == lfw_home.home_note
    assert faces.ids[[0, 20]].tolist() == ["Ann Lee/0", "Zoe Zed/10"]


def test_lfw_gets_the_gender_that_is_given(lfw_home, cache, tmp_path, monkeypatch):
    table = tmp_path / "gender.csv"
    with pytest.raises(InputError, match=r"with the array gender; got no file.*ruler data fetch lfw --labels"):
        check_gender("lfw")
    fetch_faces("lfw")
    with pytest.raises(InputError, match=r"got .*lfw\.npz without it"):
        check_gender("lfw")
    table.write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    path = cache / "images" / "lfw.npz"
    for spoil in (path.unlink, lambda: path.write_bytes(b"broken")):  # absent or broken, it is downloaded
        spoil()
        fetch_faces("lfw", labels=table)
        check_gender("lfw")
    fetch_faces("lfw")
    monkeypatch.setattr(lfw, "_ARCHIVE", None)  # nothing is downloaded twice
    table.write_text("person,gender\nZoe Zed,m\nAnn Lee,f\n")
    with pytest.raises(InputError, match="must say female or male of each person; got f, m"):
        fetch_faces("lfw", labels=table)
    table.write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    assert fetch_faces("lfw", labels=table) == cache / "images" / "lfw.npz"
    check_gender("lfw")
    faces = load_faces("lfw")
    assert set(faces.groups[faces.target == 0]) == {"Ann Lee"}
    assert faces.note == lfw_home.home_note


def test_labels_are_read_before_a_download(lfw_home, cache, tmp_path, monkeypatch):
    monkeypatch.setattr(lfw, "_ARCHIVE", None)
    with pytest.raises(InputError, match="path must be an existing file"):
        fetch_faces("lfw", labels=tmp_path / "absent.csv")


def test_lfw_with_other_people_is_refused(lfw_home, cache):
    with pytest.raises(FileFormatError, match="must hold 5 of 2 people; got 21 of 2"):
        download_lfw(dataclasses.replace(lfw_home, n_images=5))
    assert not (cache / "images").exists()
    assert fetch_faces("lfw") == cache / "images" / "lfw.npz"


def test_lfw_photo_of_another_size(remote, monkeypatch, image_bytes):
    members = {f"lfw_funneled/A/A_{n:04d}.jpg": image_bytes(100, 250, "JPEG") for n in range(10)}
    monkeypatch.setattr(lfw, "_ARCHIVE", remote(_tar(members)))
    with pytest.raises(FileFormatError, match=r"A_0000\.jpg must be 250 x 250; got 100 x 250"):
        download_lfw(FACE_SETS["lfw"])


def test_covertype_gets_its_column_names(remote, monkeypatch, real_data, cache):
    lines = [",".join(map(str, range(start, start + 55))).encode() for start in (0, 100)]
    monkeypatch.setattr(covertype, "_FILE", remote(gzip.compress(b"\n".join(lines), mtime=0)))
    table = download_covertype(LARGE_SETS["covertype"])
    assert table.columns.tolist() == list(COVERTYPE_COLUMNS)
    assert table.iloc[1].tolist() == list(range(100, 155))
    with gzip.open(real_data / "tabular" / "covertype.csv.gz", "rt") as file:
        assert file.readline().strip().split(",") == list(COVERTYPE_COLUMNS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no gzip", "must be a gzipped CSV; got another"),
        (gzip.compress(b"1,2\n3,4\n", mtime=0), "must have 55 columns; got 2"),
    ],
)
def test_covertype_in_another_form(remote, monkeypatch, content, message):
    monkeypatch.setattr(covertype, "_FILE", remote(content))
    with pytest.raises(FileFormatError, match=f"Covertype {message}"):
        download_covertype(LARGE_SETS["covertype"])


def test_another_covertype_is_not_kept(remote, monkeypatch, cache):
    rows = [",".join(["1"] * 54 + [str(kind)]) for kind in (1, 7)]
    monkeypatch.setattr(covertype, "_FILE", remote(gzip.compress("\n".join(rows).encode())))
    with pytest.raises(
        DataMismatchError, match=r"Covertype must be the paper's version; got .*rows: 2 instead of 581012"
    ):
        fetch_tabular("covertype")
    assert not list((cache / "tabular").iterdir())


def test_home_out_of_reach(remote, monkeypatch):
    nowhere = RemoteFile("http://127.0.0.1:9/none", "md5", "0", 9)
    monkeypatch.setitem(cifar._ARCHIVES, "cifar10", nowhere)
    with pytest.raises(DownloadError, match=r"CIFAR-10 must come from http.*put images/cifar10\.npz into the folder"):
        load_images("cifar10")
