"""The ten tabular sets of the primary study: where each comes from and what it must contain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ruler.core.registry import Registry


@dataclass(frozen=True)
class TabularSet:
    """One published table, and enough about it to refuse any other version.

    Args:
        key: Name in code and of the file ``tabular/<key>.csv.gz``.
        title: Name in the paper.
        n_rows, n_features: Shape after encoding.
        content_hash: SHA-256 of the encoded arrays, see ``TabularData.content_hash``.
        classes: What class 0, class 1 and so on stand for.
        class_of: The class of a label, given as text; for two classes, whether it is class 1.
        openml_id: Data set number at OpenML; None for a set that scikit-learn brings along.
        is_question_mark_a_category: OpenML marks a missing value by ``?``. In one set the mark is a
            category of its own, as in the original file.
        openml_names: The features' real names where OpenML only numbers them.
        home: Where the set is published, in words, if that is neither OpenML nor scikit-learn.
        note: What a reader of its numbers must know about our rows.
        home_note: What the download holds instead, where it is not the rows measured here.
        home_rows: How many rows that is.
    """

    kind: ClassVar[str] = "table"

    key: str
    title: str
    n_rows: int
    n_features: int
    content_hash: str
    classes: tuple[str, ...]
    class_of: Callable[[str], int]
    openml_id: int | None = None
    is_question_mark_a_category: bool = False
    openml_names: tuple[str, ...] = ()
    home: str = ""
    note: str = ""
    home_note: str = ""
    home_rows: int = 0

    @property
    def origin(self) -> str:
        """Where the set is published, in words."""
        return self.home or ("scikit-learn" if self.openml_id is None else f"OpenML {self.openml_id}")

    @property
    def file(self) -> str | None:
        """Where its file lies in a data folder; None for a set that scikit-learn brings along."""
        return None if self.origin == "scikit-learn" else f"tabular/{self.key}.csv.gz"

    @property
    def size(self) -> str:
        """Rows and features, in words."""
        return f"{self.n_rows:,} x {self.n_features}"


# fmt: off
_BANK_NAMES = (
    "age", "job", "marital", "education", "default", "balance", "housing", "loan",
    "contact", "day", "month", "duration", "campaign", "pdays", "previous", "poutcome",
)
# fmt: on

_SETS = [
    TabularSet(
        key="adult",
        title="Adult Income",
        n_rows=48842,
        n_features=14,
        content_hash="b2afd428eaaba5505af89f37d9e32384ddfad8a5fc067765a9e9bdfa9ede3792",
        classes=("<=50K", ">50K"),
        class_of=lambda label: label == ">50K",
        openml_id=1590,
    ),
    TabularSet(
        key="diabetes130",
        title="Diabetes 130-US",
        n_rows=101766,
        n_features=49,
        content_hash="b55b8a8b4fd15eae9be089aa53705bc29c2ce7249af30145929913000bbbd6d2",
        classes=("readmitted <30", "not readmitted <30"),
        class_of=lambda label: label != "<30",
        openml_id=4541,
        is_question_mark_a_category=True,
    ),
    TabularSet(
        key="breast_cancer",
        title="Breast Cancer",
        n_rows=569,
        n_features=30,
        content_hash="785a9190557f2de8e457b4298dd6f0f5437d0bfaa352f6914e735925e041b30b",
        classes=("malignant", "benign"),
        class_of=lambda label: label == "1",
    ),
    TabularSet(
        key="heart_disease",
        title="Heart Disease",
        n_rows=303,
        n_features=13,
        content_hash="9b5c7c42e74cd3a9d8258201e92948b01a01a009c4350535603078df2f39606c",
        classes=("<50", ">50"),
        class_of=lambda label: label != "<50",
        openml_id=49,
    ),
    TabularSet(
        key="german_credit",
        title="German Credit",
        n_rows=1000,
        n_features=20,
        content_hash="4f8e3480a1d6c7999fde3468f810fa3d84ed1b014ca8377b47ac99abc48b0d22",
        classes=("bad", "good"),
        class_of=lambda label: label == "good",
        openml_id=31,
    ),
    TabularSet(
        key="bank_marketing",
        title="Bank Marketing",
        n_rows=45211,
        n_features=16,
        content_hash="12f41ce1322a45eb4bd6b876b6cef7412325072ae4a7e20c45d24b97fdbb8e62",
        classes=("no", "yes"),
        class_of=lambda label: label in ("yes", "2"),  # OpenML numbers the classes: 1 no, 2 yes
        openml_id=1461,
        openml_names=_BANK_NAMES,
    ),
    TabularSet(
        key="wine_quality",
        title="Wine Quality",
        n_rows=1599,
        n_features=11,
        content_hash="0d53b0794e90b70357696f2f1820c69b530ba9e9b89e42b8f20b45065ad52110",
        classes=("quality < 6", "quality >= 6"),
        class_of=lambda label: float(label) >= 6,
        openml_id=40691,
    ),
    TabularSet(
        key="phoneme",
        title="Phoneme",
        n_rows=5404,
        n_features=5,
        content_hash="a36a831c73528ddf88e2267dd2cd2cefe5ffb1db463d083b707449a1605aa301",
        classes=("1", "2"),
        class_of=lambda label: label == "2",
        openml_id=1489,
    ),
    TabularSet(
        key="magic",
        title="Magic Telescope",
        n_rows=19020,
        n_features=10,
        content_hash="403327ea360ed4dc41d9338cfc3c06b7efa980dfbc1a4f7e0729277971eaebbc",
        classes=("g", "h"),
        class_of=lambda label: label == "h",
        openml_id=1120,
    ),
    TabularSet(
        key="electricity",
        title="Electricity",
        n_rows=45312,
        n_features=8,
        content_hash="c2822833520bdd5dba74102cdb6c0e6755f93a671118469fb33a906b6cd1ca45",
        classes=("DOWN", "UP"),
        class_of=lambda label: label == "UP",
        openml_id=151,
    ),
]

TABULAR_SETS: Registry[TabularSet] = Registry("dataset", {entry.key: entry for entry in _SETS})
