"""Each home, played by a local server that hands out small files in the published form."""

import dataclasses
import errno
import gzip
import hashlib
import io
import json
import os
import tarfile
import urllib.request
import urllib.response
from email.message import Message

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from ruler.core.errors import (
    DataMismatchError,
    DownloadError,
    FileFormatError,
    InputError,
    WriteError,
)
from ruler.data import DATASETS, RemoteFile, check_gender, list_datasets, load_faces, load_images, load_tabular
from ruler.data.faces import fetch_faces
from ruler.data.homes import (
    COVERTYPE_COLUMNS,
    download_cifar,
    download_covertype,
    download_lfw,
    download_openml,
    download_svhn,
    downloaded,
    normalise_openml,
    open_archive,
    parse_cifar,
    read_member,
    read_svhn,
)
from ruler.data.images import fetch_images
from ruler.data.tables import fetch_table


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "nothing"))
    return tmp_path / "cache"


@pytest.fixture
def remote(serve):
    def publish(content):
        url = serve({"/file": (content, {"Content-Length": str(len(content))})})
        return RemoteFile(f"{url}/file", f"sha256:{hashlib.sha256(content).hexdigest()}", len(content))

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


CIFAR10 = ("cifar-10-batches-bin/data_batch_1.bin", "cifar-10-batches-bin/test_batch.bin")
CIFAR100 = ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")


def test_cifar10_is_read_from_the_binary_batches(remote, pixels):
    content = _tar({CIFAR10[0]: _batch(pixels, [3, 1, 4, 1, 5]), CIFAR10[1]: _batch(pixels[::-1], [9, 2, 6, 5, 3])})
    found = download_cifar(dataclasses.replace(DATASETS["cifar10"], n_train=4, n_test=2, files=(remote(content),)))
    np.testing.assert_array_equal(found["train_images"], pixels[:4])
    np.testing.assert_array_equal(found["test_images"], pixels[:2:-1])
    assert found["train_labels"].tolist() == [3, 1, 4, 1]
    assert found["test_labels"].tolist() == [9, 2]


def test_cifar100_takes_the_fine_label(remote, pixels):
    batch = _batch(pixels, [1, 2, 3, 4, 5], [91, 92, 93, 94, 95])
    file = remote(_tar(dict.fromkeys(CIFAR100, batch)))
    found = download_cifar(dataclasses.replace(DATASETS["cifar100"], n_train=5, n_test=1, files=(file,)))
    assert found["train_labels"].tolist() == [91, 92, 93, 94, 95]
    np.testing.assert_array_equal(found["train_images"], pixels)


@pytest.mark.slow
def test_cifar10_as_published_is_the_content_measured_here(real_data, remote, cache):
    """The file here, dressed as the authors' archive, comes back with the pinned hash and without a mark."""
    ours = load_images("cifar10", root=real_data)
    parts = ours.train, ours.test
    batches = {name: _batch(part.images, part.target) for name, part in zip(CIFAR10, parts, strict=True)}
    entry = dataclasses.replace(DATASETS["cifar10"], files=(remote(_tar(batches)),))
    assert load_images(entry).content_hash == entry.content_hash
    assert (cache / "images" / "cifar10.npz").is_file()


def test_other_images_in_the_place_of_cifar10_are_not_kept(remote, cache, pixels):
    file = remote(_tar({name: _batch(pixels, [3, 1, 4, 1, 5]) for name in CIFAR10}))
    with pytest.raises(DataMismatchError, match=r"CIFAR-10 must be the copy .* got another from www\.cs\.toronto\.edu"):
        fetch_images(dataclasses.replace(DATASETS["cifar10"], n_train=5, n_test=5, files=(file,)))
    assert not (cache / "images").exists()


def test_short_batch():
    with pytest.raises(FileFormatError, match="batch must hold 3 images; got 7 bytes"):
        parse_cifar(b"1234567", 3)


def _matlab(images, labels):
    buffer = io.BytesIO()
    savemat(buffer, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, dtype=np.uint8)[:, None]})
    return buffer.getvalue()


def test_svhn_says_zero_for_ten_and_is_marked_as_another_draw(remote, pixels):
    files = remote(_matlab(pixels, [10, 1, 2, 10, 9])), remote(_matlab(pixels[::-1], [5, 4, 3, 2, 10]))
    small = dataclasses.replace(DATASETS["svhn"], n_train=5, n_test=2, files=files)
    found = download_svhn(small)
    assert found["train_labels"].tolist() == [0, 1, 2, 0, 9]
    np.testing.assert_array_equal(found["test_images"], pixels[:2:-1])
    loaded = load_images(small)
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
        read_svhn(tmp_path / "x.mat", 3)


@pytest.fixture
def lfw(remote, image_bytes):
    """Two people with ten photos, and one with too few."""
    counts = {"Zoe_Zed": 11, "Ann_Lee": 10, "Bob_Few": 3}
    members = {
        f"lfw_funneled/{person}/{person}_{number + 1:04d}.jpg": image_bytes(250, 250, "JPEG", seed=number)
        for person, n_images in counts.items()
        for number in range(n_images)
    }
    file = remote(_tar({**members, "lfw_funneled/../../evil.jpg": b"x"}))
    return dataclasses.replace(DATASETS["lfw"], n_images=21, n_people=2, files=(file,))


def test_lfw_brings_people_but_no_gender(lfw, cache, tmp_path):
    found = download_lfw(lfw)
    assert found["images"].shape == (21, 62, 47, 3)
    assert found["names"].tolist() == ["Ann Lee", "Zoe Zed"]
    assert np.bincount(found["identity"]).tolist() == [10, 11]
    with pytest.raises(InputError, match="labels must be given: the file has no gender; got None for 'lfw'"):
        load_faces(lfw)
    (tmp_path / "gender.csv").write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    faces = load_faces(lfw, labels=tmp_path / "gender.csv")
    assert (faces.classes, np.bincount(faces.target).tolist()) == (("female", "male"), [10, 11])
    assert set(faces.groups[faces.target == 0]) == {"Ann Lee"}
    assert faces.note == lfw.home_note
    assert faces.ids[[0, 20]].tolist() == ["Ann Lee/0", "Zoe Zed/10"]


def test_lfw_gets_the_gender_that_is_given(lfw, cache, tmp_path):
    table = tmp_path / "gender.csv"
    with pytest.raises(InputError, match=r"with the array gender; got no file.*ruler data fetch lfw --labels"):
        check_gender(lfw)
    fetch_faces(lfw)
    with pytest.raises(InputError, match=r"got .*lfw\.npz without it"):
        check_gender(lfw)
    table.write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    path = cache / "images" / "lfw.npz"
    for spoil in (path.unlink, lambda: path.write_bytes(b"broken")):  # absent or broken, it is downloaded
        spoil()
        fetch_faces(lfw, labels=table)
        check_gender(lfw)
    fetch_faces(lfw)
    gone = dataclasses.replace(lfw, files=())  # nothing is downloaded twice
    table.write_text("person,gender\nZoe Zed,m\nAnn Lee,f\n")
    with pytest.raises(InputError, match="must say female or male of each person; got f, m"):
        fetch_faces(gone, labels=table)
    table.write_text("person,gender\nZoe Zed,male\nAnn Lee,female\n")
    assert fetch_faces(gone, labels=table) == cache / "images" / "lfw.npz"
    check_gender(lfw)
    faces = load_faces(lfw)
    assert set(faces.groups[faces.target == 0]) == {"Ann Lee"}
    assert faces.note == lfw.home_note


def test_labels_are_read_before_a_download(tmp_path):
    with pytest.raises(InputError, match="path must be an existing file"):
        fetch_faces(dataclasses.replace(DATASETS["lfw"], files=()), labels=tmp_path / "absent.csv")


def test_lfw_with_other_people_is_refused(lfw, cache):
    with pytest.raises(FileFormatError, match="must hold 5 of 2 people; got 21 of 2"):
        download_lfw(dataclasses.replace(lfw, n_images=5))
    assert not (cache / "images").exists()
    assert fetch_faces(lfw) == cache / "images" / "lfw.npz"


def test_lfw_photo_of_another_size(remote, image_bytes):
    members = {f"lfw_funneled/A/A_{n:04d}.jpg": image_bytes(100, 250, "JPEG") for n in range(10)}
    with pytest.raises(FileFormatError, match=r"A_0000\.jpg must be 250 x 250; got 100 x 250"):
        download_lfw(dataclasses.replace(DATASETS["lfw"], files=(remote(_tar(members)),)))


def _covertype(file):
    return dataclasses.replace(DATASETS["covertype"], files=(file,))


def test_covertype_gets_its_column_names(remote, real_data):
    lines = [",".join(map(str, range(start, start + 55))).encode() for start in (0, 100)]
    table = download_covertype(_covertype(remote(gzip.compress(b"\n".join(lines), mtime=0))))
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
def test_covertype_in_another_form(remote, content, message):
    with pytest.raises(FileFormatError, match=f"Covertype {message}"):
        download_covertype(_covertype(remote(content)))


def test_another_covertype_is_not_kept(remote, cache):
    rows = [",".join(["1"] * 54 + [str(kind)]) for kind in (1, 7)]
    with pytest.raises(
        DataMismatchError, match=r"Covertype must be the paper's version; got .*rows: 2 instead of 581012"
    ):
        fetch_table(_covertype(remote(gzip.compress("\n".join(rows).encode()))))
    assert list(cache.iterdir()) == []


def test_home_out_of_reach():
    nowhere = RemoteFile("http://127.0.0.1:9/none", "md5:0", 9)
    with pytest.raises(DownloadError, match=r"CIFAR-10 must come from http.*put images/cifar10\.npz into the folder"):
        load_images(dataclasses.replace(DATASETS["cifar10"], files=(nowhere,)))


CONTENT = b"0123456789" * 300_000
SHA = hashlib.sha256(CONTENT).hexdigest()


def _get(url, *, checksum=f"sha256:{SHA}", max_bytes=4_000_000, progress=False):
    with downloaded(RemoteFile(url, checksum, max_bytes), DATASETS["svhn"], progress=progress) as path:
        return path, path.read_bytes()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": str(len(CONTENT))}])
def test_file_is_whole_while_needed_and_gone_afterwards(serve, cache, headers):
    path, content = _get(f"{serve({'/x': (CONTENT, headers)})}/x")
    assert content == CONTENT
    assert not path.exists()
    assert list(cache.iterdir()) == []


def test_md5_is_a_checksum_too(serve):
    checksum = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    assert _get(f"{serve({'/x': (CONTENT, {})})}/x", checksum=checksum)[1] == CONTENT


@pytest.mark.parametrize(
    ("headers", "limits", "message"),
    [
        ({}, {"checksum": "sha256:" + "0" * 64}, f"does not match the known hash: expected sha256:0.* but got {SHA}"),
        ({}, {"max_bytes": 1_500_000}, "more than the 1500000 bytes that are expected"),
        ({"Content-Length": "3000000"}, {"max_bytes": 9}, "3000000 bytes, more than the 9 that are expected"),
        ({"Content-Length": "3000009"}, {}, "IncompleteRead|does not match the known hash"),
    ],
)
def test_anything_else_is_refused_and_not_kept(serve, cache, headers, limits, message):
    url = serve({"/x": (CONTENT, headers)})
    with pytest.raises(DownloadError, match=message):
        _get(f"{url}/x", **limits)
    assert list(cache.iterdir()) == []


def test_out_of_reach_says_what_to_do(serve):
    with pytest.raises(
        DownloadError, match=r"SVHN must come from http.*/y; got HTTPError: .*404.* put images/svhn\.npz"
    ):
        _get(f"{serve({})}/y")


def test_bar_is_shown_if_it_is_asked_for(serve, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("ruler.core.progress.PATIENCE_S", -1.0)
    url = serve({"/x": (CONTENT, {"Content-Length": str(len(CONTENT))})})
    for progress in (True, False):
        screen = io.StringIO()
        screen.isatty = lambda: True
        monkeypatch.setattr("sys.stderr", screen)
        _get(f"{url}/x", progress=progress)
        assert ("Fetching SVHN" in screen.getvalue()) == progress


@pytest.fixture
def archive_path(tmp_path):
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        plain = tarfile.TarInfo("set/data.bin")
        plain.size = 6
        archive.addfile(plain, io.BytesIO(b"abcdef"))
        link = tarfile.TarInfo("set/link.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        hard = tarfile.TarInfo("set/hard.bin")
        hard.type, hard.linkname = tarfile.LNKTYPE, "set/data.bin"
        archive.addfile(hard)
        folder = tarfile.TarInfo("set/folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


def test_member_is_read_in_memory_up_to_a_limit(archive_path):
    with open_archive(archive_path) as archive:
        assert read_member(archive, "set/data.bin", at_most=4) == b"abcd"
        assert read_member(archive, "set/data.bin", at_most=99) == b"abcdef"
    assert [path.name for path in archive_path.parent.iterdir()] == ["a.tar.gz"]


@pytest.mark.parametrize("name", ["set/link.bin", "set/hard.bin", "set/folder"])
def test_links_and_folders_are_refused(archive_path, name):
    with (
        open_archive(archive_path) as archive,
        pytest.raises(FileFormatError, match="must be a plain file in the archive"),
    ):
        read_member(archive, name, at_most=9)


def test_absent_member(archive_path):
    with (
        open_archive(archive_path) as archive,
        pytest.raises(FileFormatError, match=r"must hold set/other\.bin; got none"),
    ):
        read_member(archive, "set/other.bin", at_most=9)


def test_broken_archive(tmp_path, archive_path):
    for content in (b"not a tar", archive_path.read_bytes()[:60]):
        path = tmp_path / "b.tar.gz"
        path.write_bytes(content)
        with (
            pytest.raises(FileFormatError, match="must be a gzipped tar archive; got a broken one"),
            open_archive(path) as a,
        ):
            a.getnames()


def _as_openml_would(folder, key):
    """The file's own text, dressed as OpenML does: categories, quotes, `?` for missing, numbered names."""
    table = pd.read_csv(folder / "tabular" / f"{key}.csv.gz", dtype=str, keep_default_na=False, na_values=["", "?"])
    features, target = table.iloc[:, :-1], table.iloc[:, -1].rename("Class").astype("category")
    for name in features.select_dtypes(["object", "string"]):
        if pd.to_numeric(features[name], errors="coerce").isna().any():
            features[name] = features[name].map(lambda text: f"'{text}'", na_action="ignore").astype("category")
    if key == "bank_marketing":
        features.columns = [f"V{i + 1}" for i in range(16)]
        target = target.cat.rename_categories({"no": "1", "yes": "2"})
    if key == "magic":
        features.columns = [f"{name}:" for name in features.columns]
    return features, target


AT_OPENML = [key for key in list_datasets("primary") if DATASETS[key].openml_id]


@pytest.mark.parametrize(
    "key", [pytest.param(key, marks=[pytest.mark.slow] * (key == "diabetes130")) for key in AT_OPENML]
)
def test_download_gives_the_arrays_and_names_of_the_file(real_data, cache, key):
    def answer(dataset, progress):
        return normalise_openml(*_as_openml_would(real_data, dataset.key), dataset)

    fetched = load_tabular(dataclasses.replace(DATASETS[key], download=answer))
    from_file = load_tabular(key, root=real_data)
    assert (cache / "tabular" / f"{key}.csv.gz").is_file()
    assert fetched.content_hash == from_file.content_hash
    assert fetched.feature_names == from_file.feature_names


ARFF = """@relation x
@attribute 'V1:' REAL
@attribute job {'blue collar', clerk}
@attribute Class {1, 2}
@data
0.10299999713897706,'blue collar',1
2,?,2
"""


def _answer(url):
    kinds = {"V1:": "numeric", "job": "nominal", "Class": "nominal"}
    flags = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    columns = [
        {"index": str(i), "name": name, "data_type": kind, "is_target": str(name == "Class").lower(), **flags}
        for i, (name, kind) in enumerate(kinds.items())
    ]
    description = {"id": "1489", "name": "x", "version": "1", "format": "ARFF", "file_id": "1", "status": "active"}
    description |= {"description": "", "default_target_attribute": "Class", "url": "https://openml.org/x.arff"}
    description["md5_checksum"] = hashlib.md5(ARFF.encode()).hexdigest()
    if "features" in url:
        return {"data_features": {"feature": columns}}
    if "qualities" in url:
        return {"data_qualities": {"quality": []}}
    return {"data_set_description": description}


class OpenMl(urllib.request.HTTPSHandler):
    """Answers as openml.org does, without the network."""

    def https_open(self, request):
        url = request.full_url
        body = ARFF if url.endswith(".arff") or "/download/" in url else json.dumps(_answer(url))
        reply = urllib.response.addinfourl(io.BytesIO(body.encode()), Message(), url, 200)
        reply.msg = "OK"
        return reply


@pytest.fixture
def openml():
    urllib.request.install_opener(urllib.request.build_opener(OpenMl))
    yield
    urllib.request.install_opener(None)


@pytest.mark.usefixtures("openml")
def test_scikit_learn_hands_over_the_text_as_published():
    table = download_openml(DATASETS["phoneme"])
    assert table.columns.tolist() == ["V1", "job", "class"]
    assert table["V1"].tolist() == ["0.10299999713897706", "2"]
    assert table["job"].tolist()[0] == "blue collar"
    assert table["job"].isna().tolist() == [False, True]
    assert table["class"].tolist() == ["1", "2"]


def test_bank_marketing_gets_its_names_and_classes_back():
    entry = DATASETS["bank_marketing"]
    features = pd.DataFrame({f"V{i + 1}": ["1", "2"] for i in range(16)})
    table = normalise_openml(features, pd.Series(["1", "2"]), entry)
    assert table.columns[[0, 1, -2]].tolist() == ["age", "job", "poutcome"]
    assert table.iloc[:, -1].map(entry.class_of).tolist() == [False, True]


def test_question_mark_is_missing_except_where_it_is_a_category():
    features, target = pd.DataFrame({"race": ["White", "?", None]}), pd.Series(["x", "y", "x"])
    adult = normalise_openml(features, target, DATASETS["adult"])
    diabetes = normalise_openml(features, target, DATASETS["diabetes130"])
    assert adult["race"].isna().tolist() == [False, True, True]
    assert diabetes["race"].tolist() == ["White", "?", "?"]


def test_another_version_at_openml_is_refused_and_not_kept(cache):
    other = pd.DataFrame({"V1": ["1.0", "2.0"], "class": ["1", "2"]})
    with pytest.raises(DataMismatchError, match=r"got another from OpenML 1489 \(rows: 2 instead of 5404; features: 1"):
        load_tabular(dataclasses.replace(DATASETS["phoneme"], download=lambda dataset, progress: other))
    assert not os.listdir(cache)


@pytest.mark.parametrize("error", [OSError("no route"), ValueError("md5 checksum"), KeyError("data_features")])
def test_openml_out_of_reach(monkeypatch, error, capsys):
    def fail(**_):
        raise error

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(DownloadError, match=r"Phoneme must come from OpenML 1489; got .*put tabular/phoneme\.csv\.gz"):
        load_tabular("phoneme", progress=True)
    assert capsys.readouterr().err == "Fetching Phoneme (OpenML 1489) ...\n"


def test_a_full_disk_is_not_blamed_on_the_connection(monkeypatch):
    def fail(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fail)
    with pytest.raises(WriteError, match=r"must be writable; got: No space left on device\. .* RULER_CACHE"):
        load_tabular("phoneme")
