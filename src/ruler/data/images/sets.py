"""The image and face sets of the diagnostic studies: where each comes from and what it must contain."""

from dataclasses import dataclass
from typing import ClassVar

from ruler.core.registry import Registry


@dataclass(frozen=True, kw_only=True)
class _PublishedImages:
    """What image sets and face sets have in common.

    Args:
        key: Name in code and of the file ``images/<key>.npz``.
        title: Name in the paper.
        origin: Where it is published, in words.
        image_shape: Height, width and channels.
        classes: What the classes stand for.
        content_hash: SHA-256 of what was measured here, see ``ImageSplit.content_hash`` and ``ImageData.content_hash``.
        note: What a reader of its numbers must know about our images.
        home_note: What the download holds instead; empty where it is the very same images.
    """

    key: str
    title: str
    origin: str
    image_shape: tuple[int, int, int]
    classes: tuple[str, ...]
    content_hash: str
    note: str = ""
    home_note: str = ""

    @property
    def file(self) -> str:
        """Where its file lies in a data folder."""
        return f"images/{self.key}.npz"


@dataclass(frozen=True, kw_only=True)
class ImageSet(_PublishedImages):
    """One published set of labelled images, cut to what the study trains and tests on.

    Args:
        n_train, n_test: Images of the two parts.
    """

    kind: ClassVar[str] = "images"
    n_train: int
    n_test: int

    @property
    def size(self) -> str:
        """Images of both parts, in words."""
        return f"{self.n_train:,} + {self.n_test:,} of {self.image_shape[0]} x {self.image_shape[1]}"


@dataclass(frozen=True, kw_only=True)
class FaceSet(_PublishedImages):
    """One published set of faces with the person on each.

    Args:
        n_images, n_people: How many.
    """

    kind: ClassVar[str] = "faces"
    n_images: int
    n_people: int

    @property
    def size(self) -> str:
        """Images and people, in words."""
        return f"{self.n_images:,} of {self.n_people} people"


# fmt: off
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)
# fmt: on

_IMAGE_SETS = [
    ImageSet(
        key="cifar10",
        title="CIFAR-10",
        origin="www.cs.toronto.edu/~kriz/cifar.html",
        n_train=10000,
        n_test=2000,
        image_shape=(32, 32, 3),
        classes=_CIFAR10,
        content_hash="7040ff7fcc2333799b1d8eac776ffeb585bc6732ed71c5cee7cad60e6376c609",
        note="the first 10,000 training and the first 2,000 test images, in the official order",
    ),
    ImageSet(
        key="cifar100",
        title="CIFAR-100",
        origin="www.cs.toronto.edu/~kriz/cifar.html",
        n_train=10000,
        n_test=2000,
        image_shape=(32, 32, 3),
        classes=_CIFAR100,
        content_hash="705cc5928358fdbfd660cda954e46b1bc5846c7f1bcbdccb954b31d403e4f3c5",
        note="a class-balanced draw of 10,000 + 2,000 images; the split is this project's, not the official one",
        home_note="the first 10,000 official training and the first 2,000 official test images, not the draw that "
        "this project measured",
    ),
    ImageSet(
        key="svhn",
        title="SVHN",
        origin="ufldl.stanford.edu/housenumbers",
        n_train=10000,
        n_test=2000,
        image_shape=(32, 32, 3),
        classes=tuple("0123456789"),
        content_hash="4461d8f8299bf355e562804cc09de66b2322c2972572c8a787d4d6918ec297a7",
        note="10,000 + 2,000 digits of the training part, cropped again from the full photos",
        home_note="the first 10,000 digits of the official training crops and the first 2,000 of the test crops, not "
        "the digits that this project measured",
    ),
]

_FACE_SETS = [
    FaceSet(
        key="lfw",
        title="LFW",
        origin="vis-www.cs.umass.edu/lfw (figshare copy)",
        n_images=4324,
        n_people=158,
        image_shape=(62, 47, 3),
        classes=("female", "male"),
        content_hash="227cd7ef2238ee15476b150bfcb1e015018c2945a851216f6e38d074a52c2bbb",
        note="deep-funneled images of everyone with at least ten; gender by public lists of names",
        home_note="funneled images, where this project measured deep-funneled ones, and gender from the list that "
        "was given",
    ),
]

IMAGE_SETS: Registry[ImageSet] = Registry("image set", {entry.key: entry for entry in _IMAGE_SETS})
FACE_SETS: Registry[FaceSet] = Registry("face set", {entry.key: entry for entry in _FACE_SETS})
