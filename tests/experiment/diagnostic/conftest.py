"""Data for smoke runs: the real sets where they are, else made-up ones in the layout of RULER_DATA."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ruler.data import DATASETS, load_tabular
from ruler.data.texts import hash_texts
from ruler.experiment.diagnostic.data import load_data

FILES = ("tabular/higgs.csv.gz", "images/svhn.npz", "images/lfw.npz", "text/mtsamples.csv.gz")
WORDS = ("patient", "pain", "heart", "blood", "chest", "left", "right", "history", "exam", "normal")
N_ROWS, N_TRAIN, N_TEST, N_PEOPLE, N_DOCUMENTS = 640, 120, 60, 14, 30


@pytest.fixture
def made_up_data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small data folder with a set of each kind, which RULER_DATA names meanwhile."""
    folder = tmp_path_factory.mktemp("data")
    make_data(folder)
    accept_data(folder, monkeypatch)
    monkeypatch.setenv("RULER_DATA", str(folder))
    monkeypatch.setenv("RULER_CACHE", str(folder / "cache"))
    load_data.cache_clear()
    yield folder
    load_data.cache_clear()


@pytest.fixture
def smoke_data(request: pytest.FixtureRequest) -> Path:
    """The real sets where RULER_DATA holds them, else made-up ones."""
    real = Path(os.environ.get("RULER_DATA", "/nowhere"))
    is_whole = all((real / file).is_file() for file in FILES)
    return real if is_whole else request.getfixturevalue("made_up_data")


def make_data(folder: Path) -> None:
    random = np.random.default_rng(0)
    for file in FILES:
        (folder / file).parent.mkdir(exist_ok=True)
    make_table(random).to_csv(folder / FILES[0], index=False)
    # A download of these two may hold other images than ours, and carries such a note: workers accept it as well.
    np.savez(folder / FILES[1], note=DATASETS["svhn"].home_note, **make_digits(random))
    np.savez(folder / FILES[2], note=DATASETS["lfw"].home_note, **make_faces(random))
    make_notes(random).to_csv(folder / FILES[3], index=False)


def accept_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process take the table and the texts for the published ones, which have no other version."""
    table = load_tabular(folder / FILES[0], target="class")
    texts = hash_texts(pd.read_csv(folder / FILES[3])["transcription"])
    stand_ins = [
        replace(DATASETS["higgs"], n_rows=len(table), content_hash=table.content_hash),
        *(replace(DATASETS[key], content_hash=texts) for key in ("mtsamples", "mtsamples_rows")),
    ]
    for dataset in stand_ins:
        monkeypatch.setitem(DATASETS._entries, dataset.key, dataset)


def make_table(random: np.random.Generator) -> pd.DataFrame:
    target = random.integers(0, 2, N_ROWS)
    features = random.normal(size=(N_ROWS, 28)) + target[:, None]
    return pd.DataFrame(features, columns=[f"f{i}" for i in range(28)]).assign(**{"class": target.astype(float)})


def make_digits(random: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        **{f"{part}_images": draw_images(random, n, 32, 32) for part, n in (("train", N_TRAIN), ("test", N_TEST))},
        **{f"{part}_labels": np.arange(n) % 10 for part, n in (("train", N_TRAIN), ("test", N_TEST))},
    }


def make_faces(random: np.random.Generator) -> dict[str, np.ndarray]:
    identity = np.repeat(np.arange(N_PEOPLE), 3 + np.arange(N_PEOPLE) % 4)
    names = np.array([f"Person {i}" for i in range(N_PEOPLE)])
    images = draw_images(random, len(identity), 62, 47)
    return {"images": images, "identity": identity, "names": names, "gender": identity % 2}


def make_notes(random: np.random.Generator) -> pd.DataFrame:
    """Documents of which a third is listed twice."""
    documents = [
        " ".join(f"The {' '.join(random.choice(WORDS, 5))} was seen." for _ in range(6)) for _ in range(N_DOCUMENTS)
    ]
    listed = documents + documents[::3]
    return pd.DataFrame({"sample_name": [f"Note {i}" for i in range(len(listed))], "transcription": listed})


def draw_images(random: np.random.Generator, n: int, height: int, width: int) -> np.ndarray:
    return random.integers(0, 256, (n, height, width, 3), dtype=np.uint8)


@pytest.fixture
def language_model(tmp_path: Path) -> Path:
    """A tiny BERT without a language-model head, and its tokenizer, as ``save_pretrained`` leaves them."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "tiny"
    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,"
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    vocabulary = [*special, *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder
