from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

from ruler.core.errors import InputError
from ruler.training.batches import Batches, shift_images
from ruler.training.sentences import MaskedSentences

ROWS, LABELS = torch.arange(10.0)[:, None], torch.arange(10) % 2
MODEL = nn.Linear(1, 2)


class Pairs(Dataset[Any]):
    def __init__(self, size: int = 10) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, i: int) -> Any:
        return ROWS[i], LABELS[i]


def read_epoch(batches: Batches) -> list[float]:
    return torch.cat([inputs.flatten() for inputs, _ in batches]).tolist()


@pytest.mark.parametrize("source", [(ROWS, LABELS), TensorDataset(ROWS, LABELS), Pairs()])
def test_full_batch_is_all_records_in_their_own_order(source: Any) -> None:
    steps = list(Batches(source, MODEL))
    assert len(steps) == 1
    assert torch.equal(steps[0][0], ROWS)
    assert torch.equal(steps[0][1], LABELS)


@pytest.mark.parametrize("source", [(ROWS, LABELS), TensorDataset(ROWS, LABELS), Pairs()])
def test_mini_batches_visit_every_record_once_an_epoch_and_shuffle_anew(source: Any) -> None:
    batches = Batches(source, MODEL, batch_size=4, seed=3)
    first, second = read_epoch(batches), read_epoch(batches)
    assert sorted(first) == sorted(second) == ROWS.flatten().tolist()
    assert first != second


@pytest.mark.parametrize("source", [(ROWS, LABELS), Pairs()])
def test_order_depends_on_its_seed_and_not_on_the_global_stream(source: Any) -> None:
    torch.manual_seed(0)
    first = read_epoch(Batches(source, MODEL, batch_size=4, seed=3))
    state = torch.get_rng_state()
    assert read_epoch(Batches(source, MODEL, batch_size=4, seed=3)) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert read_epoch(Batches(source, MODEL, batch_size=4, seed=4)) != first


def test_a_loader_keeps_its_batch_size_and_order() -> None:
    loader = DataLoader(TensorDataset(ROWS, LABELS), batch_size=3)
    sizes = [len(labels) for _, labels in Batches(loader, MODEL, batch_size=7)]
    assert sizes == [3, 3, 3, 1]


def test_arrays_take_the_models_float_type_and_long_labels() -> None:
    pair = (np.zeros((4, 1)), np.zeros(4, dtype=np.int32))
    inputs, labels = next(iter(Batches(pair, nn.Linear(1, 2))))
    assert (inputs.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert next(iter(Batches(pair, nn.Linear(1, 2).double())))[0].dtype == torch.float64


@pytest.mark.parametrize("source", [(ROWS, LABELS), Pairs()])
@pytest.mark.parametrize("batch_size", [4, None])
def test_fewer_records_an_epoch_are_a_fresh_draw_without_repeats(source: Any, batch_size: int | None) -> None:
    batches = Batches(source, MODEL, batch_size=batch_size, seed=3, records_per_epoch=6)
    first, second = read_epoch(batches), read_epoch(batches)
    assert len(set(first)) == len(set(second)) == 6
    assert set(first) != set(second)
    assert len(batches) == (1 if batch_size is None else 2)
    assert len(read_epoch(Batches(source, MODEL, batch_size=4, records_per_epoch=99))) == 10


def test_a_loader_decides_itself_how_many_records_it_draws() -> None:
    with pytest.raises(InputError, match="records_per_epoch must be None where data is a DataLoader; got 6"):
        Batches(DataLoader(Pairs()), MODEL, records_per_epoch=6)


def test_images_lie_as_the_models_filters_do() -> None:
    pair = (torch.rand(6, 3, 4, 4), LABELS[:6])
    for memory_format in (torch.contiguous_format, torch.channels_last):
        model = nn.Conv2d(3, 2, 3).to(memory_format=memory_format)
        for augment in ("none", "flip_crop"):
            for batch_size in (4, None):
                for images, _ in Batches(pair, model, batch_size=batch_size, augment=augment):
                    assert images.is_contiguous(memory_format=memory_format)


def test_lengths_are_steps_an_epoch() -> None:
    sources: list[Any] = [(ROWS, LABELS), Pairs(), DataLoader(Pairs(), batch_size=3)]
    assert [len(Batches(source, MODEL, batch_size=4)) for source in sources] == [3, 3, 4]
    assert [len(Batches(source, MODEL)) for source in sources] == [1, 1, 4]


def test_what_a_loader_yields_keeps_its_nest() -> None:
    loader = DataLoader(Pairs(2), batch_size=None, collate_fn=lambda pair: {"ids": [pair[0], "text"], "n": 3})
    batch = next(iter(Batches(loader, MODEL)))
    assert torch.equal(batch["ids"][0], ROWS[0])
    assert (batch["ids"][1], batch["n"]) == ("text", 3)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ROWS, r"forget must be a pair \(X, y\), a Dataset or a DataLoader; got Tensor"),
        ((ROWS, LABELS[:3]), "forget must hold one label per record and at least one record; got 10 inputs and 3"),
        ((ROWS[:0], LABELS[:0]), "got 0 inputs and 0 labels"),
        ((3.0, LABELS), "forget must hold arrays with one row per record; got a single value"),
        (Pairs(0), "forget must be a Dataset with a length above 0"),
    ],
)
def test_unfit_sources_are_named(source: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Batches(source, MODEL, name="forget")


IMAGES = torch.rand(40, 3, 8, 10, generator=torch.Generator().manual_seed(0)) + 1


def list_views(image: torch.Tensor, *, is_mirrored: bool) -> list[torch.Tensor]:
    """Every shift of an image by up to 4 pixels, spelled out, with its mirror images."""
    padded = functional.pad(image, (4, 4, 4, 4))
    views = [padded[:, y : y + 8, x : x + 10] for y in range(9) for x in range(9)]
    return views + [view.flip(2) for view in views] if is_mirrored else views


@pytest.mark.parametrize("is_mirrored", [True, False])
def test_every_image_becomes_one_of_its_views(is_mirrored: bool) -> None:
    changed = shift_images(IMAGES, torch.Generator().manual_seed(1), is_mirrored=is_mirrored)
    for image, view in zip(IMAGES, changed, strict=True):
        assert any(torch.equal(view, other) for other in list_views(image, is_mirrored=is_mirrored))


def test_about_half_are_mirrored() -> None:
    images = torch.arange(256.0).reshape(16, 16).repeat(2000, 1, 1, 1) + 1
    changed = shift_images(images, torch.Generator().manual_seed(1))
    inner = changed[:, 0, 8, 7:9]  # neighbours that no shift makes empty
    assert (inner[:, 0] > inner[:, 1]).float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_epochs_differ_and_seeds_repeat() -> None:
    pair = (IMAGES, torch.arange(40))
    model = nn.Conv2d(3, 4, 3)
    batches, again = (Batches(pair, model, batch_size=40, seed=2, augment="flip_crop") for _ in "ab")
    (first, rows), (second, others) = next(iter(batches)), next(iter(batches))
    assert not torch.equal(first[rows.argsort()], second[others.argsort()])
    assert torch.equal(next(iter(again))[0], first)
    whole = Batches(pair, model, seed=2, augment="flip_crop")
    assert not torch.equal(next(iter(whole))[0], next(iter(whole))[0])


def test_tables_and_sentences_cannot_be_shifted() -> None:
    with pytest.raises(
        InputError, match=r"augment must be 'none' for records that are not images .* got shape \(5, 2\)"
    ):
        shift_images(torch.zeros(5, 2), torch.Generator())
    ids = torch.ones(2, 2)
    sentences = MaskedSentences(ids, ids, mask_id=3, special_ids=(), vocab_size=4)
    with pytest.raises(InputError, match=r"augment must be 'none' unless data is a pair \(X, y\); got MaskedSentences"):
        Batches(sentences, nn.Linear(1, 1), augment="flip_crop")
