"""What is known of a dataset before it is loaded: its names, sizes and home, and what it must contain."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ruler.core.errors import DataMismatchError
from ruler.data.types import ImageData, ImageSplit, Prompts, TabularData, TextData


@dataclass(frozen=True)
class RemoteFile:
    """One file at its public home.

    Args:
        url: Where it is.
        checksum: As its publisher states it, after the algorithm: ``"md5:c32a..."``.
        max_bytes: More than this is refused, whatever the server says.
    """

    url: str
    checksum: str
    max_bytes: int


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """What every dataset says of itself, whatever its kind; use one of the five subclasses.

    A dataset of your own needs a key, a title, its sizes and ``read``. A published one is looked for in the data
    folder, then in the cache, then downloaded into the cache.

    Args:
        key: Name in code and on the command line.
        title: Name in tables and figures.
        origin: Where it is published, in words.
        read: Returns the loaded data; for a dataset that a Python package brings along.
        download: Called with the dataset and whether to show progress, returns what is cached; None where no program
            can get it.
        files: What ``download`` fetches.
        by_hand: How to get it where no program can.
        stem: Name of its file in a data folder, where that is not the key.
        content_hash: SHA-256 of the content that numbers were measured on; empty if any content will do.
        note: What a reader of its numbers must know.
        home_note: What its download holds instead, where that is not the content measured here.
        study: The paper's study that it belongs to. Empty for all others: no dataset joins a study by itself.
        architectures: Names of the models that can be trained on it.
        is_control: Only the original and the oracle are measured on it; no method is run.
    """

    kind: ClassVar[str]
    place: ClassVar[str]  # of its file in a data folder, with {} for its name

    key: str
    title: str
    origin: str = "a package of yours"
    read: Callable[[], Any] | None = None
    download: Callable[[Any, bool], Any] | None = None
    files: tuple[RemoteFile, ...] = ()
    by_hand: str = "Its home asks for an account: get the CSV file there, gzip it"
    stem: str = ""
    content_hash: str = ""
    note: str = ""
    home_note: str = ""
    study: str = ""
    architectures: tuple[str, ...] = ()
    is_control: bool = False

    @property
    def file(self) -> str | None:
        """Where its file lies in a data folder; None for a dataset that a Python package brings along."""
        return None if self.read is not None else self.place.format(self.stem or self.key)

    @property
    def size(self) -> str:
        """How much it holds, in words."""
        raise NotImplementedError

    @property
    def n_records(self) -> int:
        """About how many records models are trained on."""
        raise NotImplementedError

    def verify(self, content_hash: str, mark: str, source: str) -> str:
        """The note that belongs to a copy of this dataset.

        Args:
            content_hash: Of the copy.
            mark: What the copy says of itself; a download with other records than ours carries ``home_note``.
            source: Where the copy is from, for the error.
        """
        if content_hash == self.content_hash or not self.content_hash:
            return self.note
        if mark and mark == self.home_note:
            return mark
        raise DataMismatchError(
            f"{self.title} must be the copy that this project measured, or its download; got another from {source} "
            f"(content: {content_hash[:12]} instead of {self.content_hash[:12]}). Load it by its path as data of your "
            f"own, or remove it and run: ruler data fetch {self.key}"
        )


@dataclass(frozen=True, kw_only=True)
class TabularSet(Dataset):
    """A table.

    Args:
        n_rows, n_features: Shape after encoding.
        classes: What class 0, class 1 and so on stand for.
        class_of: The class of a label, given as text; for two classes, whether it is class 1.
        openml_id: Number of the dataset at OpenML.
        is_question_mark_a_category: OpenML marks a missing value by ``?``. In one dataset the mark is a
            category of its own, as in the original file.
        openml_names: The features' real names where OpenML only numbers them.
        home_rows: How many rows its download has, where these are not the rows measured here.
        paper_rows: How many rows the paper takes of it, where there are fewer here.
    """

    kind: ClassVar[str] = "table"
    place: ClassVar[str] = "tabular/{}.csv.gz"

    read: Callable[[], TabularData] | None = None
    architectures: tuple[str, ...] = ("tabular_mlp", "residual_mlp", "ft_transformer")
    n_rows: int
    n_features: int
    classes: tuple[str, ...] = ()
    class_of: Callable[[str], int] = int
    openml_id: int | None = None
    is_question_mark_a_category: bool = False
    openml_names: tuple[str, ...] = ()
    home_rows: int = 0
    paper_rows: int = 0

    @property
    def size(self) -> str:
        """Rows and features, in words."""
        fewer = f" (of the paper's {self.paper_rows:,} rows)" if self.paper_rows else ""
        return f"{self.n_rows:,} x {self.n_features}{fewer}"

    @property
    def n_records(self) -> int:
        """Rows that are not held out."""
        return int(0.8 * self.n_rows)


@dataclass(frozen=True, kw_only=True)
class ImageSet(Dataset):
    """Labelled images, cut to what a study trains and tests on.

    Args:
        image_shape: Height, width and channels.
        classes: What the classes stand for.
        n_train, n_test: Images of the two parts.
        is_mirrored_alike: Whether a mirrored image still belongs to its class.
    """

    kind: ClassVar[str] = "images"
    place: ClassVar[str] = "images/{}.npz"

    read: Callable[[], ImageSplit] | None = None
    architectures: tuple[str, ...] = ("small_cnn", "resnet18")
    image_shape: tuple[int, int, int]
    classes: tuple[str, ...] = ()
    n_train: int
    n_test: int
    is_mirrored_alike: bool = True

    @property
    def size(self) -> str:
        """Images of both parts, in words."""
        return f"{self.n_train:,} + {self.n_test:,} of {self.image_shape[0]} x {self.image_shape[1]}"

    @property
    def n_records(self) -> int:
        """Images that are not held out."""
        return self.n_train


@dataclass(frozen=True, kw_only=True)
class FaceSet(Dataset):
    """Faces with the person on each.

    Args:
        image_shape: Height, width and channels.
        classes: What the classes stand for.
        n_images, n_people: How many.
    """

    kind: ClassVar[str] = "faces"
    place: ClassVar[str] = "images/{}.npz"

    read: Callable[[], ImageData] | None = None
    architectures: tuple[str, ...] = ("resnet18",)
    image_shape: tuple[int, int, int]
    classes: tuple[str, ...] = ()
    n_images: int
    n_people: int

    @property
    def size(self) -> str:
        """Images and people, in words."""
        return f"{self.n_images:,} of {self.n_people} people"

    @property
    def n_records(self) -> int:
        """Images of the people who are not held out."""
        return int(0.85 * self.n_images)


@dataclass(frozen=True, kw_only=True)
class TextSet(Dataset):
    """Texts, one per row of a table.

    Args:
        n_texts, n_distinct: Rows with a text, and different texts among them.
        column: Where the texts stand.
        by: What a document is, see ``load_texts``.
    """

    kind: ClassVar[str] = "text"
    place: ClassVar[str] = "text/{}.csv.gz"

    read: Callable[[], TextData] | None = None
    architectures: tuple[str, ...] = ("bert_mlm",)
    n_texts: int
    n_distinct: int
    column: str = "text"
    by: Literal["distinct", "row"] = "distinct"

    @property
    def size(self) -> str:
        """Texts, in words."""
        return f"{self.n_texts:,} texts, {self.n_distinct:,} distinct"

    @property
    def n_records(self) -> int:
        """Sentences that a model is trained on in an epoch."""
        return 3_000


@dataclass(frozen=True, kw_only=True)
class PromptSet(Dataset):
    """Prompts and completions for a language model.

    Args:
        parse: The records of its main file and of those beside it.
        n_prompts, n_groups: How many records there are, and how many authors, documents or persons they are about.
    """

    kind: ClassVar[str] = "prompts"
    place: ClassVar[str] = "text/{}"

    read: Callable[[], Prompts] | None = None
    parse: Callable[[Path], Prompts] | None = None
    architectures: tuple[str, ...] = ("causal_lm",)
    n_prompts: int
    n_groups: int

    @property
    def size(self) -> str:
        """Prompts and groups, in words."""
        return f"{self.n_prompts:,} prompts, {self.n_groups:,} groups"

    @property
    def n_records(self) -> int:
        """All of them; held-out groups are set aside when they are split."""
        return self.n_prompts
