"""Loaded data as values: tables, images, texts and prompts."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, IndexArray

PixelArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class TabularData:
    """A table as numbers: row i is record ``ids[i]`` of class ``target[i]``.

    Args:
        name: Key of a dataset, or the file's name.
        features: (n, d) float64, encoded but not yet scaled.
        target: (n,) classes 0..c-1.
        feature_names: d names.
        classes: c labels that the classes stand for.
        ids: (n,) names of the records; row numbers where the table names none.
        note: What a reader of its numbers must know about these rows; mostly nothing.
    """

    name: str
    features: FloatArray
    target: IndexArray
    feature_names: tuple[str, ...]
    classes: tuple[str, ...]
    ids: npt.NDArray[Any]
    note: str = ""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def content_hash(self) -> str:
        """SHA-256 of shape, features and target in little-endian order: the same on every machine."""
        digest = hashlib.sha256(f"{self.features.shape}".encode())
        digest.update(np.ascontiguousarray(self.features, dtype="<f8").data)
        digest.update(np.ascontiguousarray(self.target, dtype="<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images as bytes: image i is record ``ids[i]`` of class ``target[i]``.

    Args:
        name: Key of a dataset, or the folder's or file's name.
        images: (n, height, width, channels) uint8.
        target: (n,) classes 0..c-1.
        classes: c labels that the classes stand for.
        ids: (n,) names of the records.
        groups: (n,) who or what each image belongs to, such as a person; None where nothing is known.
        note: What a reader of its numbers must know about these images; mostly nothing.
    """

    name: str
    images: PixelArray
    target: IndexArray
    classes: tuple[str, ...]
    ids: npt.NDArray[Any]
    groups: npt.NDArray[Any] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or 0 in self.images.shape:
            raise InputError(
                f"images of {self.name} must be uint8 of shape (n, height, width, channels); got {self.images.dtype} "
                f"of shape {self.images.shape}. Convert them, and keep the channels last."
            )
        groups = self.ids if self.groups is None else self.groups
        if not self.target.shape == self.ids.shape == groups.shape == (len(self.images),):
            raise InputError(
                f"target, ids and groups of {self.name} must be one entry per image, {len(self.images)}; got "
                f"{self.target.shape}, {self.ids.shape} and {groups.shape}."
            )
        if self.target.dtype.kind not in "iu" or self.target.min() < 0 or self.target.max() >= len(self.classes):
            raise InputError(
                f"target of {self.name} must be classes from 0 to {len(self.classes) - 1}; got {self.target.dtype} "
                f"from {self.target.min()} to {self.target.max()}."
            )

    def __len__(self) -> int:
        return len(self.target)

    @property
    def content_hash(self) -> str:
        """SHA-256 of shape, images, target and groups: the same on every machine."""
        digest = hashlib.sha256(f"{self.images.shape}".encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.target, dtype="<i8").data)
        if self.groups is not None:
            digest.update("\n".join(map(str, self.groups.tolist())).encode())
        return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images to train and to test on, the same classes in both parts."""

    train: ImageData
    test: ImageData

    @property
    def content_hash(self) -> str:
        """SHA-256 of both parts: the same on every machine."""
        return hashlib.sha256(f"{self.train.content_hash}{self.test.content_hash}".encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class TextData:
    """Sentences of documents: sentence i is from document ``documents[i]``.

    Args:
        name: Key of a dataset, or the file's or folder's name.
        sentences: n texts of 20 to 300 characters.
        documents: (n,) document of each sentence, 0..n_documents-1: the groups of a partition.
        n_documents: How many documents there are; a few may hold no sentence of that length.
        ids: (n,) names of the sentences: row of the table where the document is first listed, and its place there.
        note: What a reader of its numbers must know about these texts.
    """

    name: str
    sentences: tuple[str, ...]
    documents: IndexArray
    n_documents: int
    ids: npt.NDArray[Any]
    note: str = ""

    def __len__(self) -> int:
        return len(self.sentences)


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts with the completions that a language model is trained to give: record i belongs to ``groups[i]``.

    Args:
        name: Key of a dataset, or the file's or folder's name.
        prompts, completions: n texts each; no template is applied and no space is put between them.
        ids: (n,) names of the records.
        groups: (n,) who or what each record is about: author, document, person. Records of a group are forgotten
            together.
        strata: (n,) what kind of record each is, such as its task; None where all are alike.
        paraphrases: n times the completion in other words; empty where there is none.
        perturbations: n times wrong completions in the form of the paraphrase; empty where there are none.
        spans: n times the first character of the completion's decisive words and the one behind the last; None where
            they are not marked.
        forget_sets: Names of the sets that the dataset's authors propose to forget, and the groups of each.
        note: What a reader of its numbers must know about these records.

    Raises:
        InputError: Fields of different lengths, no records, or a span outside its completion.
    """

    name: str
    prompts: tuple[str, ...]
    completions: tuple[str, ...]
    ids: npt.NDArray[Any]
    groups: npt.NDArray[Any]
    strata: npt.NDArray[Any] | None = None
    paraphrases: tuple[str, ...] = ()
    perturbations: tuple[tuple[str, ...], ...] = ()
    spans: tuple[tuple[int, int] | None, ...] = ()
    forget_sets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""

    def __post_init__(self) -> None:
        n = len(self.prompts)
        empty = {"paraphrases": ("",) * n, "perturbations": ((),) * n, "spans": (None,) * n}
        for name, value in empty.items():
            object.__setattr__(self, name, getattr(self, name) or value)
        strata = self.groups if self.strata is None else self.strata
        beside = (self.completions, self.ids, self.groups, strata, self.paraphrases, self.perturbations, self.spans)
        if n == 0 or any(len(values) != n for values in beside):
            raise InputError(
                f"{self.name} must have one prompt, completion, id, group and so on per record, and at least one "
                f"record; got {n} prompts and {', '.join(str(len(values)) for values in beside)}."
            )
        for span, completion in zip(self.spans, self.completions, strict=True):
            if span is not None and not 0 <= span[0] < span[1] <= len(completion):
                raise InputError(f"spans of {self.name} must lie in the completion; got {span} in {completion!r:.80}.")

    def __len__(self) -> int:
        return len(self.prompts)

    def select(self, rows: Sequence[int] | IndexArray) -> "Prompts":
        """The same value with some of the records, in this order."""

        def pick(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[row] for row in rows)

        return replace(
            self,
            prompts=pick(self.prompts),
            completions=pick(self.completions),
            ids=self.ids[rows],
            groups=self.groups[rows],
            strata=None if self.strata is None else self.strata[rows],
            paraphrases=pick(self.paraphrases),
            perturbations=pick(self.perturbations),
            spans=pick(self.spans),
        )

    @property
    def content_hash(self) -> str:
        """SHA-256 of all records with what is known of them: the same on every machine."""
        digest = hashlib.sha256()
        strata = [""] * len(self) if self.strata is None else self.strata.tolist()
        beside = (self.ids.tolist(), self.groups.tolist(), strata, self.spans, self.paraphrases, self.perturbations)
        for record in zip(self.prompts, self.completions, *beside, strict=True):
            digest.update(json.dumps(record).encode())
        digest.update(json.dumps(sorted(self.forget_sets.items())).encode())
        return digest.hexdigest()
