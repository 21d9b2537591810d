import numpy as np
import pytest

from ruler.core.errors import InputError
from ruler.data import ImageData, ImageSplit


def _data(**changes):
    n = 3
    fields = {
        "name": "toy",
        "images": np.arange(n * 12, dtype=np.uint8).reshape(n, 2, 2, 3),
        "target": np.array([0, 1, 1]),
        "classes": ("a", "b"),
        "ids": np.arange(n),
    }
    return ImageData(**{**fields, **changes})


def test_hash_sees_shape_images_target_and_groups_but_not_the_layout_in_memory():
    plain = _data()
    assert (
        _data(images=np.asfortranarray(plain.images), ids=np.array(["x", "y", "z"])).content_hash == plain.content_hash
    )
    others = [
        _data(images=plain.images[::-1]),
        _data(images=plain.images.reshape(3, 4, 1, 3)),
        _data(target=np.array([1, 1, 0])),
        _data(groups=np.array(["p", "p", "q"])),
        _data(groups=np.array(["p", "q", "q"])),
    ]
    assert len({data.content_hash for data in [plain, *others]}) == 6
    assert ImageSplit(plain, others[0]).content_hash != ImageSplit(others[0], plain).content_hash
    assert len(plain) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"images": np.zeros((3, 2, 2, 3))},
            r"images of toy must be uint8 of shape .* got float64 of shape \(3, 2, 2, 3\)",
        ),
        ({"images": np.zeros((3, 2, 2), np.uint8)}, r"images of toy must be uint8 .* got uint8 of shape \(3, 2, 2\)"),
        ({"images": np.zeros((0, 2, 2, 3), np.uint8)}, r"images of toy must be uint8 .* shape \(0, 2, 2, 3\)"),
        ({"target": np.array([0, 1])}, r"must be one entry per image, 3; got \(2,\), \(3,\) and \(3,\)"),
        ({"groups": np.array(["p"])}, r"must be one entry per image, 3; got \(3,\), \(3,\) and \(1,\)"),
        ({"target": np.array([0, 1, 2])}, "target of toy must be classes from 0 to 1; got int64 from 0 to 2"),
        ({"target": np.array([0, -1, 1])}, "target of toy must be classes from 0 to 1; got int64 from -1 to 1"),
        ({"target": np.array([0.0, 0.5, 1.0])}, r"must be classes from 0 to 1; got float64 from 0\.0 to 1\.0"),
    ],
)
def test_images_and_labels_that_do_not_fit(changes, message):
    with pytest.raises(InputError, match=message):
        _data(**changes)
