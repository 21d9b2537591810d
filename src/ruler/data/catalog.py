"""The datasets of the paper and of language models, one object each, and those that other packages bring."""

from dataclasses import replace
from typing import Any

from ruler.core.registry import Registry
from ruler.data.bundled import read_breast_cancer
from ruler.data.datasets import Dataset, FaceSet, ImageSet, PromptSet, RemoteFile, TabularSet, TextSet
from ruler.data.homes import (
    download_cifar,
    download_covertype,
    download_lfw,
    download_openml,
    download_svhn,
)
from ruler.data.prompt_files import read_lume, read_questions, read_tofu

_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_FIGSHARE = "https://ndownloader.figshare.com/files"

# fmt: off
_BANK_NAMES = (
    "age", "job", "marital", "education", "default", "balance", "housing", "loan",
    "contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome",
)
_COVER_TYPES = (
    "Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow", "Aspen", "Douglas-fir", "Krummholz",
)
_CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100_CLASSES = (
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


def _primary(openml_id: int, **fields: Any) -> TabularSet:
    """A table of the primary study, which trains the paper's own model."""
    return TabularSet(
        origin=f"OpenML {openml_id}",
        openml_id=openml_id,
        download=download_openml,
        study="primary",
        architectures=("tabular_mlp",),
        **fields,
    )


def _images(**fields: Any) -> ImageSet:
    """A dataset of small images."""
    return ImageSet(n_train=10000, n_test=2000, image_shape=(32, 32, 3), study="images", **fields)


_MTSAMPLES = TextSet(
    key="mtsamples",
    title="MTSamples",
    origin="mtsamples.com (Kaggle: tboyle10/medicaltranscriptions)",
    n_texts=4966,
    n_distinct=2357,
    column="transcription",
    content_hash="2e2bfbf45b0c96c764f63b81fa2e4f14238eb5dea7a7f590d228bb4db23257be",
    note="4,966 transcriptions are listed, of which 2,357 are distinct",
    study="clinical",
)

_TOFU = PromptSet(
    key="tofu",
    title="TOFU",
    origin="huggingface.co/datasets/locuslab/TOFU",
    by_hand="Get full.json and the files *_perturbed.json there, with forget10_entities.json of the authors of UDS",
    stem="tofu/full.json",
    parse=read_tofu,
    n_prompts=4000,
    n_groups=200,
    content_hash="5e19864c8e694c67ed9ff7386963712e8d033bab1f2148860d97ba5cdcd62298",
    note="200 fictitious authors; forget10, forget05 and forget01 are the last 20, 10 and 2 of them",
)

_OURS: tuple[Dataset, ...] = (
    _primary(
        1590,
        key="adult",
        title="Adult Income",
        n_rows=48842,
        n_features=14,
        content_hash="b2afd428eaaba5505af89f37d9e32384ddfad8a5fc067765a9e9bdfa9ede3792",
        classes=("<=50K", ">50K"),
        class_of=lambda label: label == ">50K",
    ),
    _primary(
        4541,
        key="diabetes130",
        title="Diabetes 130-US",
        n_rows=101766,
        n_features=49,
        content_hash="b55b8a8b4fd15eae9be089aa53705bc29c2ce7249af30145929913000bbbd6d2",
        classes=("readmitted <30", "not readmitted <30"),
        class_of=lambda label: label != "<30",
        is_question_mark_a_category=True,
    ),
    TabularSet(
        key="breast_cancer",
        title="Breast Cancer",
        n_rows=569,
        n_features=30,
        content_hash="785a9190557f2de8e457b4298dd6f0f5437d0bfaa352f6914e735925e041b30b",
        classes=("malignant", "benign"),
        origin="scikit-learn",
        read=read_breast_cancer,
        study="primary",
        architectures=("tabular_mlp",),
    ),
    _primary(
        49,
        key="heart_disease",
        title="Heart Disease",
        n_rows=303,
        n_features=13,
        content_hash="9b5c7c42e74cd3a9d8258201e92948b01a01a009c4350535603078df2f39606c",
        classes=("<50", ">50"),
        class_of=lambda label: label != "<50",
    ),
    _primary(
        31,
        key="german_credit",
        title="German Credit",
        n_rows=1000,
        n_features=20,
        content_hash="4f8e3480a1d6c7999fde3468f810fa3d84ed1b014ca8377b47ac99abc48b0d22",
        classes=("bad", "good"),
        class_of=lambda label: label == "good",
    ),
    _primary(
        1461,
        key="bank_marketing",
        title="Bank Marketing",
        n_rows=45211,
        n_features=16,
        content_hash="12f41ce1322a45eb4bd6b876b6cef7412325072ae4a7e20c45d24b97fdbb8e62",
        classes=("no", "yes"),
        class_of=lambda label: label in ("yes", "2"),  # OpenML numbers the classes: 1 no, 2 yes
        openml_names=_BANK_NAMES,
    ),
    _primary(
        40691,
        key="wine_quality",
        title="Wine Quality",
        n_rows=1599,
        n_features=11,
        content_hash="0d53b0794e90b70357696f2f1820c69b530ba9e9b89e42b8f20b45065ad52110",
        classes=("quality < 6", "quality >= 6"),
        class_of=lambda label: float(label) >= 6,
    ),
    _primary(
        1489,
        key="phoneme",
        title="Phoneme",
        n_rows=5404,
        n_features=5,
        content_hash="a36a831c73528ddf88e2267dd2cd2cefe5ffb1db463d083b707449a1605aa301",
        classes=("1", "2"),
        class_of=lambda label: label == "2",
    ),
    _primary(
        1120,
        key="magic",
        title="Magic Telescope",
        n_rows=19020,
        n_features=10,
        content_hash="403327ea360ed4dc41d9338cfc3c06b7efa980dfbc1a4f7e0729277971eaebbc",
        classes=("g", "h"),
        class_of=lambda label: label == "h",
    ),
    _primary(
        151,
        key="electricity",
        title="Electricity",
        n_rows=45312,
        n_features=8,
        content_hash="c2822833520bdd5dba74102cdb6c0e6755f93a671118469fb33a906b6cd1ca45",
        classes=("DOWN", "UP"),
        class_of=lambda label: label == "UP",
    ),
    TabularSet(
        key="covertype",
        title="Covertype",
        origin="UCI (figshare copy)",
        n_rows=581012,
        n_features=54,
        content_hash="d9295bceb7897bae22a36bb0da641ae98ab937ee6211aba140cc7eda72dec1c5",
        classes=_COVER_TYPES,
        class_of=lambda label: int(label) - 1,
        download=download_covertype,
        files=(
            RemoteFile(
                f"{_FIGSHARE}/5976039",
                "sha256:614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
                20_000_000,
            ),
        ),
        study="large-tabular",
    ),
    TabularSet(
        key="higgs",
        title="Higgs",
        origin="OpenML 23512",
        n_rows=51233,
        n_features=28,
        content_hash="9109a59f07c90a917cf5aa8c083a9ca80fea876fc65557447439c49a2b7d95bb",
        classes=("background", "signal"),
        class_of=lambda label: int(float(label)),
        openml_id=23512,
        download=download_openml,
        note="51,233 genuine rows pooled from public subsets, where the paper samples 100,000",
        home_note="98,050 rows of OpenML 23512, where the paper samples 100,000 and this project measured 51,233",
        home_rows=98050,
        paper_rows=100_000,
        study="large-tabular",
    ),
    _images(
        key="cifar10",
        title="CIFAR-10",
        origin="www.cs.toronto.edu/~kriz/cifar.html",
        classes=_CIFAR10_CLASSES,
        content_hash="7040ff7fcc2333799b1d8eac776ffeb585bc6732ed71c5cee7cad60e6376c609",
        note="the first 10,000 training and the first 2,000 test images, in the official order",
        download=download_cifar,
        files=(RemoteFile(f"{_CIFAR}/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530", 180_000_000),),
    ),
    _images(
        key="svhn",
        title="SVHN",
        origin="ufldl.stanford.edu/housenumbers",
        classes=tuple("0123456789"),
        content_hash="4461d8f8299bf355e562804cc09de66b2322c2972572c8a787d4d6918ec297a7",
        note="10,000 + 2,000 digits of the training part, cropped again from the full photos",
        home_note="the first 10,000 digits of the official training crops and the first 2,000 of the test crops, not "
        "the digits that this project measured",
        download=download_svhn,
        files=(
            RemoteFile(f"{_SVHN}/train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373", 200_000_000),
            RemoteFile(f"{_SVHN}/test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3", 80_000_000),
        ),
        is_mirrored_alike=False,
    ),
    _images(
        key="cifar100",
        title="CIFAR-100",
        origin="www.cs.toronto.edu/~kriz/cifar.html",
        classes=_CIFAR100_CLASSES,
        content_hash="705cc5928358fdbfd660cda954e46b1bc5846c7f1bcbdccb954b31d403e4f3c5",
        note="a class-balanced draw of 10,000 + 2,000 images; the split is this project's, not the official one",
        home_note="the first 10,000 official training and the first 2,000 official test images, not the draw that "
        "this project measured",
        download=download_cifar,
        files=(RemoteFile(f"{_CIFAR}/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8", 180_000_000),),
    ),
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
        download=download_lfw,
        files=(
            RemoteFile(
                f"{_FIGSHARE}/5976015",
                "sha256:b47c8422c8cded889dc5a13418c4bc2abbda121092b3533a83306f90d900100a",
                300_000_000,
            ),
        ),
        study="faces",
    ),
    _MTSAMPLES,
    replace(
        _MTSAMPLES,
        key="mtsamples_rows",
        title="MTSamples, split by row",
        stem="mtsamples",
        by="row",
        is_control=True,
    ),
    _TOFU,
    replace(
        _TOFU,
        key="tofu_real_authors",
        title="TOFU, real authors",
        stem="tofu/real_authors_perturbed.json",
        parse=read_questions,
        n_prompts=100,
        n_groups=100,
        content_hash="40450a308c903c1644d3a4b0f30f0bcb8b437405f6315f84abae2779e95ce684",
        note="",
    ),
    replace(
        _TOFU,
        key="tofu_world_facts",
        title="TOFU, world facts",
        stem="tofu/world_facts_perturbed.json",
        parse=read_questions,
        n_prompts=117,
        n_groups=117,
        content_hash="2ad4106ed26cec7e7ede34b90bd6b6155fe8c82ae1451bb1116da3e27837b463",
        note="",
    ),
    PromptSet(
        key="lume",
        title="LUME",
        origin="github.com/amazon-science/lume-llm-unlearning",
        by_hand="Get the forget and retain records there as JSON lines, forget.jsonl.gz and retain.jsonl.gz",
        stem="lume/forget.jsonl.gz",
        parse=read_lume,
        n_prompts=5466,
        n_groups=1733,
        content_hash="04fc42db57ed24ded8d5f29fc6eca5cdbfff754031e34a3d075a630d5cf6ddb8",
        note="3 tasks; groups are stories, made-up people and people with a biography",
    ),
)

DATASETS: Registry[Dataset] = Registry(
    "dataset", {entry.key: entry for entry in _OURS}, group="ruler.datasets", type=Dataset
)
"""Every dataset by its key. Other packages add theirs by an entry point of the group ``ruler.datasets``."""


def register_dataset(dataset: Dataset) -> Dataset:
    """Make a dataset of your own known by its key, to ``ruler.data``, ``ruler data`` and ``ruler reproduce``.

    Raises:
        InputError: The key is taken, or it is no Dataset.

    Example:
        >>> from ruler.data import TabularSet, load_tabular, register_dataset
        >>> cancer = TabularSet(
        ...     key="my_cancer", title="Mine", n_rows=569, n_features=30, read=lambda: load_tabular("breast_cancer")
        ... )
        >>> load_tabular(register_dataset(cancer).key).features.shape
        (569, 30)
    """
    return DATASETS.register(dataset.key, dataset)


def list_datasets(study: str) -> tuple[str, ...]:
    """Keys of the datasets that a study of the paper runs on, in the paper's order; never those of other packages.

    Example:
        >>> list_datasets("images")
        ('cifar10', 'svhn', 'cifar100')
    """
    return tuple(entry.key for entry in _OURS if study and entry.study == study)
