"""What models train on, what is held out from them, and what may train a missing head."""

from pathlib import Path

import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.experiment.diagnostic.material import SMOKE_PEOPLE, Material, load_material


def cut_groups(material: Material) -> tuple[set[str], set[str]]:
    assert material.groups is not None
    train, held_out = np.split(material.groups, [material.n_train])
    return set(train.tolist()), set(held_out.tolist())


@pytest.mark.parametrize("size", ["smoke", "full"])
@pytest.mark.usefixtures("made_up_data")
def test_no_person_is_both_trained_on_and_held_out(size: str) -> None:
    train, held_out = cut_groups(load_material("lfw", size))
    assert min(len(train), len(held_out)) > 0
    assert not train & held_out


@pytest.mark.usefixtures("smoke_data")
def test_few_faces_are_of_whole_people_and_of_both_classes() -> None:
    few, every = load_material("lfw", "smoke"), load_material("lfw")
    assert few.labels is not None
    assert few.groups is not None
    assert every.groups is not None
    people, sizes = np.unique(few.groups, return_counts=True)
    assert len(people) == SMOKE_PEOPLE
    assert sizes.tolist() == [int((every.groups == person).sum()) for person in people]
    assert np.bincount(few.labels[: few.n_train]).min() > 0


@pytest.mark.usefixtures("made_up_data")
def test_a_face_keeps_its_label() -> None:
    faces = load_material("lfw")
    assert faces.labels is not None
    assert faces.groups is not None
    people = [int(name.removeprefix("Person ")) for name in faces.groups.tolist()]
    assert faces.labels.tolist() == [person % 2 for person in people]


@pytest.mark.parametrize("dataset", ["mtsamples", "mtsamples_rows"])
@pytest.mark.usefixtures("made_up_data")  # of the real sentences some are the same but for case or beyond the cut
def test_a_missing_head_is_trained_on_sentences_of_no_study(dataset: str, language_model: Path) -> None:
    texts = load_material(dataset, "smoke", str(language_model))
    assert texts.language is not None
    head = {row.tobytes() for row in texts.language.head_tokens}
    assert head
    assert head.isdisjoint(row.tobytes() for row in texts.inputs)


@pytest.mark.usefixtures("smoke_data")
def test_no_document_is_both_trained_on_and_held_out(language_model: Path) -> None:
    train, held_out = cut_groups(load_material("mtsamples", "smoke", str(language_model)))
    assert min(len(train), len(held_out)) > 0
    assert not train & held_out


@pytest.mark.usefixtures("made_up_data")
def test_no_more_than_is_trained_on_can_be_forgotten() -> None:
    with pytest.raises(InputError, match=r"forget fraction must be below 0\.8\d*, the share .*; got 0\.99"):
        load_material("lfw").cut(0.99, 0, "random")
