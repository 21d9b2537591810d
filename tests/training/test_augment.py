import pytest
import torch
from torch import nn
from torch.nn import functional

from ruler.core.errors import InputError
from ruler.training import MaskedSentences
from ruler.training.augment import shift_images
from ruler.training.batches import Batches

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
    batches, again = (Batches(pair, model, batch_size=40, seed=2, augment=shift_images) for _ in "ab")
    (first, rows), (second, others) = next(iter(batches)), next(iter(batches))
    assert not torch.equal(first[rows.argsort()], second[others.argsort()])
    assert torch.equal(next(iter(again))[0], first)
    whole = Batches(pair, model, seed=2, augment=shift_images)
    assert not torch.equal(next(iter(whole))[0], next(iter(whole))[0])


def test_tables_and_sentences_cannot_be_shifted() -> None:
    with pytest.raises(
        InputError, match=r"augment must be 'none' for records that are not images .* got shape \(5, 2\)"
    ):
        shift_images(torch.zeros(5, 2), torch.Generator())
    ids = torch.ones(2, 2)
    sentences = MaskedSentences(ids, ids, mask_id=3, special_ids=(), vocab_size=4)
    with pytest.raises(InputError, match=r"augment must be 'none' unless data is a pair \(X, y\); got MaskedSentences"):
        Batches(sentences, nn.Linear(1, 1), augment=shift_images)
