"""A diagnostic dataset -> what models are trained on, what is held out from them, and what is measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import InputError
from ruler.core.types import IndexArray, Partition
from ruler.data import (
    DATASETS,
    ImageSplit,
    Prompts,
    TextData,
    load_faces,
    load_images,
    load_prompts,
    load_tabular,
    load_texts,
    partition_groups,
    partition_rows,
    sample_rows,
    split,
    split_prompts,
)

Array = npt.NDArray[Any]

TABLE_ROWS = 100_000  # the paper's sample
HELD_OUT_IDENTITIES = 0.15  # share of faces, whole identities, that no model sees: the control and the test set
N_DOCUMENTS, N_HELD_OUT_DOCUMENTS = 1000, 200  # for training and for the control; the others can train a missing head
SPLIT_SEED = 999
SMOKE_ROWS, SMOKE_IMAGES, SMOKE_PEOPLE = 600, 96, 12
SMOKE_SIDE = 8  # pixels: a smoke run also takes every fourth pixel or so
SMOKE_DOCUMENTS, SMOKE_HELD_OUT_DOCUMENTS, SMOKE_SENTENCES, SMOKE_TOKENS = 12, 4, 4, 16  # sentences: of each
SMOKE_GROUPS = 8
PROMPT_FORM = "Question: {prompt}\nAnswer: {completion}"
MOST_PROMPT_TOKENS = 512
HELD_OUT_GROUPS = 0.2  # share of authors or documents: twice the largest forget set, since few of them say little
MOST_TOKENS = 64  # the paper allows 128; 0.5% of these sentences have more than 64


@dataclass(frozen=True)
class Vocabulary:
    """The token numbers that masking must know.

    Args:
        special_ids: Numbers of tokens that are never masked, such as [CLS].
    """

    size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Language:
    """What token numbers mean, and the model that knows them.

    Args:
        folder: Of the pretrained model.
        description: Its name, for the results.
        head_tokens: (m, n_tokens) distinct sentences that stand in no document that is forgotten, retained or held
            out: a head that the folder lacks is trained on them.
    """

    folder: Path
    description: str
    vocabulary: Vocabulary
    head_tokens: Array


@dataclass(frozen=True, eq=False)
class Completing:
    """What a causal language model is asked for.

    Args:
        folder: Of the pretrained model.
        description: Its name, for the results.
        labels: (n, n_tokens) the inputs on tokens of completions, -100 elsewhere.
        prompts: The records themselves, in the same order.
        sets: The groups that the dataset's authors propose to forget, set by set.
    """

    folder: Path
    description: str
    labels: Array
    prompts: Prompts
    sets: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, eq=False)
class DiagnosticData:
    """Records as a model takes them; training records first, held-out ones after them.

    Args:
        inputs: (n, ...) array; for texts token numbers (n, n_tokens), padded.
        labels: (n,) classes; None for texts.
        groups: (n,) whose record it is; None where every record stands for itself.
        n_train: How many of the records are for training.
        n_classes: Columns of the logits; for texts the size of the vocabulary.
        scale: A forget fraction counts all records of the dataset: training records times this number.
        language: Of texts: their model, its vocabulary, and sentences that no study uses; of prompts: what is asked.
    """

    inputs: Array
    labels: IndexArray | None
    groups: Array | None
    n_train: int
    n_classes: int
    scale: float = 1.0
    language: Language | Completing | None = None

    @cached_property
    def distinct(self) -> tuple[Array, IndexArray]:
        """Distinct inputs, and which of them each record is: identical records are read once, and so tie exactly."""
        flat = np.ascontiguousarray(self.inputs).reshape(len(self.inputs), -1)
        rows = np.ascontiguousarray(flat).view(f"V{flat.dtype.itemsize * flat.shape[1]}").reshape(-1)
        names: dict[bytes, int] = {}
        place = np.fromiter((names.setdefault(row.tobytes(), len(names)) for row in rows), np.int64, len(rows))
        first = np.unique(place, return_index=True)[1]
        return self.inputs[first], place

    def cut(self, fraction: float, seed: int, choice: Any) -> Partition:
        """The training records to forget and to retain.

        Where the dataset's authors propose a set of as many groups as the fraction of all groups gives, it is that set.

        Raises:
            InputError: As many as are trained on, or more.
        """
        if self.groups is None:
            return partition_rows(self.n_train, fraction, seed=seed)
        if isinstance(self.language, Completing):
            n_wanted = round(fraction * len(np.unique(self.groups)))
            for names in self.language.sets:
                if len(names) == n_wanted:
                    return partition_groups(self.groups[: self.n_train], names)
        if fraction * self.scale >= 1:
            raise InputError(
                f"forget fraction must be below {1 / self.scale:.3g}, the share of records that are trained on; "
                f"got {fraction:g}."
            )
        return partition_groups(self.groups[: self.n_train], fraction=fraction * self.scale, seed=seed, choice=choice)


@lru_cache(maxsize=2)
def load_data(dataset: str, size: str = "full", language_model: str | None = None) -> DiagnosticData:
    """Everything that a diagnostic study needs of a dataset; kept while a process works on it.

    Args:
        dataset: Key of a diagnostic dataset.
        size: ``smoke`` takes a few hundred records.
        language_model: Folder of a transformers model for texts; None looks for one.
    """
    kind = DATASETS[dataset].kind
    if kind == "text":
        return _load_texts(dataset, size, language_model)
    if kind == "prompts":
        return _load_prompts(dataset, size, language_model)
    if kind == "images":
        n_train = SMOKE_IMAGES if size == "smoke" else None
        return prepare_images(load_images(dataset), n_train, is_thin=size == "smoke")
    return _load_table(dataset, size) if kind == "table" else _load_faces(dataset, size)


def _load_table(dataset: str, size: str) -> DiagnosticData:
    data = load_tabular(dataset)
    n_rows = SMOKE_ROWS if size == "smoke" else TABLE_ROWS
    if len(data) > n_rows:
        data = sample_rows(data, n_rows, seed=SPLIT_SEED)
    parts = split(data)
    return DiagnosticData(
        inputs=np.concatenate([parts.train_features, parts.test_features]),
        labels=np.concatenate([parts.train_target, parts.test_target]),
        groups=None,
        n_train=len(parts.train_target),
        n_classes=len(data.classes),
    )


def prepare_images(parts: ImageSplit, n_train: int | None = None, *, is_thin: bool = False) -> DiagnosticData:
    """Images as inputs of a network: all of them, or the first for training and half as many held-out ones."""
    train, test = slice(n_train), slice(None if n_train is None else n_train // 2)
    images = np.concatenate([parts.train.images[train], parts.test.images[test]])
    n_kept = len(parts.train.target[train])
    return DiagnosticData(
        inputs=normalise_images(_thin_out(images) if is_thin else images, n_kept),
        labels=np.concatenate([parts.train.target[train], parts.test.target[test]]),
        groups=None,
        n_train=n_kept,
        n_classes=len(parts.train.classes),
    )


def _load_faces(dataset: str, size: str) -> DiagnosticData:
    faces = load_faces(dataset)
    images, target, groups = faces.images, faces.target, np.asarray(faces.groups)
    if size == "smoke":
        kept = np.flatnonzero(np.isin(groups, _choose_few(groups, target)))
        images, target, groups = _thin_out(images[kept]), target[kept], groups[kept]
    control = partition_groups(groups, fraction=HELD_OUT_IDENTITIES, seed=SPLIT_SEED + 1)
    order = np.concatenate([control.retain, control.forget])
    n_train = len(control.retain)
    return DiagnosticData(
        inputs=normalise_images(images[order], n_train),
        labels=target[order],
        groups=groups[order],
        n_train=n_train,
        n_classes=len(faces.classes),
        scale=len(order) / n_train,
    )


def _choose_few(groups: Array, target: IndexArray) -> Array:
    """Those with the fewest images, of all classes by turns: a model of one class would have nothing to learn."""
    names, first, sizes = np.unique(groups, return_index=True, return_counts=True)
    turns = np.empty(len(names), dtype=np.int64)
    for members in (np.flatnonzero(target[first] == label) for label in np.unique(target)):
        turns[members[np.argsort(sizes[members], kind="stable")]] = np.arange(len(members))
    few: Array = names[np.lexsort((sizes, turns))[:SMOKE_PEOPLE]]
    return few


def _load_texts(dataset: str, size: str, language_model: str | None) -> DiagnosticData:
    from ruler.models.language_models import resolve_language_model  # needs transformers

    folder, description = resolve_language_model(language_model)
    texts = load_texts(dataset)
    documents = np.asarray(texts.documents)
    is_smoke = size == "smoke"
    n_train, n_control = (
        (SMOKE_DOCUMENTS, SMOKE_HELD_OUT_DOCUMENTS) if is_smoke else (N_DOCUMENTS, N_HELD_OUT_DOCUMENTS)
    )
    contents = number_contents(documents, texts.sentences)  # both datasets hold the same transcriptions
    drawn = np.random.RandomState(SPLIT_SEED).permutation(np.unique(contents))
    names = np.split(drawn[: 2 * n_train] if is_smoke else drawn, [n_train, n_train + n_control])
    place = np.arange(len(documents)) - np.searchsorted(documents, documents)  # in the document; they come in order
    is_wanted = place < (SMOKE_SENTENCES if is_smoke else len(documents))
    parts = [np.flatnonzero(np.isin(contents, part) & is_wanted) for part in names]
    return prepare_sentences(texts, parts, folder, description, SMOKE_TOKENS if is_smoke else MOST_TOKENS)


def prepare_sentences(
    texts: TextData, parts: Sequence[IndexArray], folder: Path, description: str, most_tokens: int = MOST_TOKENS
) -> DiagnosticData:
    """Sentences as tokens of a masked language model.

    Args:
        texts: All of them.
        parts: Which sentences train, which are held out, and which may train a head that the model lacks.
        folder: Of the model.
        description: Its name, for the results.
        most_tokens: Of a sentence; what is longer is cut.
    """
    train, control, head = parts
    order = np.concatenate([train, control])
    used = [texts.sentences[i] for i in order]
    unused = sorted({texts.sentences[i] for i in head}.difference(used))  # stock sentences are in all parts
    tokens, vocabulary = tokenize([*used, *unused], folder, most_tokens)
    return DiagnosticData(
        inputs=tokens[: len(order)],
        labels=None,
        groups=np.asarray(texts.documents)[order],
        n_train=len(train),
        n_classes=vocabulary.size,
        language=Language(folder, description, vocabulary, tokens[len(order) :]),
    )


def _load_prompts(dataset: str, size: str, language_model: str | None) -> DiagnosticData:
    from ruler.models.language_models import resolve_causal_model  # needs transformers

    folder, description = resolve_causal_model(language_model)
    prompts = load_prompts(dataset)
    sets = tuple(prompts.forget_sets.values())
    largest = max(sets, key=len)
    n_groups = len(np.unique(prompts.groups))
    n_held_out = min(round(HELD_OUT_GROUPS * n_groups), (n_groups - len(largest)) // 2)
    parts = split_prompts(prompts, largest, n_held_out=n_held_out, seed=SPLIT_SEED)
    sides = [parts.retain, parts.forget, parts.held_out]
    if size == "smoke":
        sides = [_take_few(side) for side in sides]
    place = {name: row for row, name in enumerate(prompts.ids.tolist())}
    texts = prompts.select([place[name] for side in sides for name in side.ids.tolist()])
    return prepare_prompts(texts, len(sides[0]) + len(sides[1]), folder, description)


def prepare_prompts(texts: Prompts, n_train: int, folder: Path, description: str) -> DiagnosticData:
    """Prompts and completions as tokens of a causal language model.

    Args:
        texts: Training records first, held-out ones after them.
        n_train: How many of them are for training.
        folder: Of the model.
        description: Its name, for the results.
    """
    from ruler.core.readers.pretrained import load_tokenizer
    from ruler.embeddings.prompts import encode_prompts  # needs torch

    tokens = encode_prompts(
        load_tokenizer(folder), texts.prompts, texts.completions, form=PROMPT_FORM, max_tokens=MOST_PROMPT_TOKENS
    )
    sets = tuple(texts.forget_sets.values())
    present = set(texts.groups[:n_train].tolist())
    whole = tuple(names for names in sets if present.issuperset(names))
    return DiagnosticData(
        inputs=tokens["input_ids"].numpy(),
        labels=None,
        groups=np.asarray(texts.groups),
        n_train=n_train,
        n_classes=0,
        scale=len(texts) / n_train,
        language=Completing(folder, description, tokens["labels"].numpy(), texts, whole),
    )


def _take_few(side: Prompts) -> Prompts:
    """A few records of a few groups."""
    names, first = np.unique(side.groups, return_index=True)
    few = names[np.argsort(first)][:SMOKE_GROUPS]
    return side.select(np.concatenate([np.flatnonzero(side.groups == name)[:SMOKE_SENTENCES] for name in few]))


def tokenize(sentences: Sequence[str], folder: Path, most_tokens: int) -> tuple[npt.NDArray[np.int64], Vocabulary]:
    """Token numbers (n, n_tokens), cut at ``most_tokens`` and padded to the longest; and their vocabulary.

    Raises:
        FileFormatError: No tokenizer in the folder, or one that cannot mask or pad.
    """
    from ruler.models.language_models import load_masking_tokenizer  # needs transformers

    tokenizer = load_masking_tokenizer(folder)
    encoded = tokenizer(
        list(sentences), truncation=True, max_length=most_tokens, padding="longest", return_attention_mask=False
    )
    special = tuple(sorted(tokenizer.all_special_ids))
    vocabulary = Vocabulary(len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id, special)
    return np.asarray(encoded["input_ids"], dtype=np.int64), vocabulary


def number_contents(documents: Array, sentences: Sequence[str]) -> IndexArray:
    """(n,) which text each sentence's document has; documents with the same sentences share a number.

    Example:
        >>> number_contents(np.array([0, 0, 1, 1, 2]), ["a", "b", "a", "b", "c"]).tolist()
        [0, 0, 0, 0, 1]
    """
    content: dict[Any, list[str]] = {}
    for document, sentence in zip(documents.tolist(), sentences, strict=True):
        content.setdefault(document, []).append(sentence)
    numbers: dict[tuple[str, ...], int] = {}
    of_document = {document: numbers.setdefault(tuple(text), len(numbers)) for document, text in content.items()}
    return np.array([of_document[document] for document in documents.tolist()], dtype=np.int64)


def _thin_out(images: Array) -> Array:
    step = max(1, min(images.shape[1:3]) // SMOKE_SIDE)
    return images[:, ::step, ::step]


def normalise_images(images: Array, n_train: int) -> Array:
    """(n, h, w, c) bytes -> (n, c, h, w) float32, each channel scaled by mean and deviation of the training images."""
    scaled = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / np.float32(255)
    mean = scaled[:n_train].mean(axis=(0, 2, 3), keepdims=True, dtype=np.float64)
    deviation = scaled[:n_train].std(axis=(0, 2, 3), keepdims=True, dtype=np.float64)
    normalised: Array = ((scaled - mean) / deviation).astype(np.float32)
    return normalised
