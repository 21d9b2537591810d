"""A node gets what it lacks, where a download would have put it, and nothing else."""

from pathlib import Path

import pytest

from ruler.experiment.cell import Workplace
from ruler.experiment.executors.parcels import Parcel, pack, unpack


class Shelf:
    """Stands in for the object store, and counts what is fetched."""

    def __init__(self) -> None:
        self.held: list[bytes] = []
        self.n_fetched = 0

    def put(self, content: bytes) -> int:
        self.held.append(content)
        return len(self.held) - 1

    def get(self, reference: int) -> bytes:
        self.n_fetched += 1
        return self.held[reference]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The coordinator's machine: a data folder with one set and a folder of published models."""
    (tmp_path / "data" / "tabular").mkdir(parents=True)
    (tmp_path / "data" / "tabular" / "adult.csv.gz").write_bytes(b"a table")
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "adult_seed0_orig.pt").write_bytes(b"a model")
    (tmp_path / "published" / "magic_seed0_orig.pt").write_bytes(b"of another dataset")
    monkeypatch.setenv("RULER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def move_to(folder: Path, monkeypatch: pytest.MonkeyPatch, *, data: str | None = None) -> None:
    monkeypatch.setenv("RULER_CACHE", str(folder))
    monkeypatch.delenv("RULER_DATA") if data is None else monkeypatch.setenv("RULER_DATA", data)


def test_a_bare_node_gets_the_data_once(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel = pack("adult", Workplace(), shelf.put)
    move_to(tmp_path / "node", monkeypatch, data="/nowhere")
    for _ in range(2):
        assert unpack(parcel, Workplace(), shelf.get) == Workplace()
    assert (tmp_path / "node" / "tabular" / "adult.csv.gz").read_bytes() == b"a table"
    assert shelf.n_fetched == 1


def test_a_node_that_sees_the_coordinators_folder_reads_it_there(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel = pack("adult", Workplace(checkpoints=source / "published"), shelf.put)
    move_to(tmp_path / "node", monkeypatch)
    workplace = Workplace(checkpoints=source / "published")
    assert unpack(parcel, workplace, shelf.get) == workplace
    assert shelf.n_fetched == 0
    assert not (tmp_path / "node").exists()


def test_published_models_of_the_dataset_come_along(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parcel = pack("adult", Workplace(checkpoints=source / "published"), shelf.put)
    move_to(tmp_path / "node", monkeypatch, data=str(source / "data"))
    there = unpack(parcel, Workplace(checkpoints=Path("/nowhere/published")), shelf.get).checkpoints
    assert there is not None
    assert there.is_relative_to(tmp_path / "node")
    assert there.name == "published"
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {"adult_seed0_orig.pt": b"a model"}


def test_a_named_language_model_comes_along_with_texts(
    source: Path, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "own-bert").mkdir()
    (source / "own-bert" / "config.json").write_bytes(b"{}")
    workplace = Workplace(language_model=str(source / "own-bert"))
    assert pack("adult", workplace, shelf.put).language_model is None
    assert pack("mtsamples", Workplace(language_model="hub/name"), shelf.put).language_model is None
    parcel = pack("mtsamples_rows", workplace, shelf.put)
    (source / "own-bert").rename(source / "elsewhere")  # the node does not see it
    move_to(tmp_path / "node", monkeypatch)
    there = unpack(parcel, workplace, shelf.get).language_model
    assert there is not None
    assert Path(there).name == "own-bert"  # rows name the model by its folder
    assert (Path(there) / "config.json").read_bytes() == b"{}"
    assert unpack(Parcel({}), Workplace(language_model="hub/name"), shelf.get).language_model == "hub/name"


def test_models_of_another_content_never_share_a_folder(source: Path, shelf: Shelf) -> None:
    workplace = Workplace(checkpoints=source / "published")
    before = pack("adult", workplace, shelf.put).checkpoints
    (source / "published" / "adult_seed0_orig.pt").write_bytes(b"a better model")
    after = pack("adult", workplace, shelf.put).checkpoints
    assert before is not None
    assert after is not None
    assert before.digest != after.digest


def test_a_set_that_comes_with_scikit_learn_needs_no_file(source: Path, shelf: Shelf) -> None:
    assert pack("breast_cancer", Workplace(), shelf.put) == Parcel({}, data_root=str(source / "data"))


@pytest.mark.parametrize(
    ("dataset", "place"), [("cifar10", "images/cifar10.npz"), ("mtsamples_rows", "text/mtsamples.csv.gz")]
)
def test_every_kind_of_dataset_travels(source: Path, shelf: Shelf, dataset: str, place: str) -> None:
    (source / "data" / place).parent.mkdir()
    (source / "data" / place).write_bytes(b"images or text")
    assert pack(dataset, Workplace(), shelf.put).data == {place: 0}
