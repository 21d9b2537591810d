"""What models train on, what is held out from them, and what may train a missing head."""

import json
from pathlib import Path

import numpy as np
import pytest

from ruler.core.errors import FileFormatError, InputError
from ruler.experiment.diagnostic.data import SMOKE_PEOPLE, DiagnosticData, load_data, tokenize


def cut_groups(data: DiagnosticData) -> tuple[set[str], set[str]]:
    assert data.groups is not None
    train, held_out = np.split(data.groups, [data.n_train])
    return set(train.tolist()), set(held_out.tolist())


@pytest.mark.parametrize("size", ["smoke", "full"])
@pytest.mark.usefixtures("made_up_data")
def test_no_person_is_both_trained_on_and_held_out(size: str) -> None:
    train, held_out = cut_groups(load_data("lfw", size))
    assert min(len(train), len(held_out)) > 0
    assert not train & held_out


@pytest.mark.usefixtures("smoke_data")
def test_few_faces_are_of_whole_people_and_of_both_classes() -> None:
    few, every = load_data("lfw", "smoke"), load_data("lfw")
    assert few.labels is not None
    assert few.groups is not None
    assert every.groups is not None
    people, sizes = np.unique(few.groups, return_counts=True)
    assert len(people) == SMOKE_PEOPLE
    assert sizes.tolist() == [int((every.groups == person).sum()) for person in people]
    assert np.bincount(few.labels[: few.n_train]).min() > 0


@pytest.mark.usefixtures("made_up_data")
def test_a_face_keeps_its_label() -> None:
    faces = load_data("lfw")
    assert faces.labels is not None
    assert faces.groups is not None
    people = [int(name.removeprefix("Person ")) for name in faces.groups.tolist()]
    assert faces.labels.tolist() == [person % 2 for person in people]


@pytest.mark.parametrize("dataset", ["mtsamples", "mtsamples_rows"])
@pytest.mark.usefixtures("made_up_data")  # of the real sentences some are the same but for case or beyond the cut
def test_a_missing_head_is_trained_on_sentences_of_no_study(dataset: str, language_model: Path) -> None:
    texts = load_data(dataset, "smoke", str(language_model))
    assert texts.language is not None
    head = {row.tobytes() for row in texts.language.head_tokens}
    assert head
    assert head.isdisjoint(row.tobytes() for row in texts.inputs)


@pytest.mark.usefixtures("smoke_data")
def test_no_document_is_both_trained_on_and_held_out(language_model: Path) -> None:
    train, held_out = cut_groups(load_data("mtsamples", "smoke", str(language_model)))
    assert min(len(train), len(held_out)) > 0
    assert not train & held_out


@pytest.mark.usefixtures("made_up_data")
def test_no_more_than_is_trained_on_can_be_forgotten() -> None:
    with pytest.raises(InputError, match=r"forget fraction must be below 0\.8\d*, the share .*; got 0\.99"):
        load_data("lfw").cut(0.99, 0, "random")


def test_sentences_are_cut_and_padded(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfever\npain\n")
    tokens, vocabulary = tokenize(["fever pain fever pain", "pain"], tmp_path, 5)
    assert tokens.tolist() == [[2, 5, 6, 5, 3], [2, 6, 3, 0, 0]]
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.pad_id) == (7, 4, 0)
    assert vocabulary.special_ids == (0, 1, 2, 3, 4)


def test_a_tokenizer_that_cannot_mask_is_refused(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"fever": 0, "?": 1}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="?").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(FileFormatError, match="must have a mask and a padding token; got mask None and padding None"):
        tokenize(["fever"], tmp_path, 5)
    with pytest.raises(FileFormatError, match=r"must be a folder with a config\.json"):
        tokenize(["fever"], tmp_path / "none", 5)
