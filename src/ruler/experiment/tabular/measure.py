"""A dataset and a forget set -> records; models and records -> the paper's M4, membership inference and accuracies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, IndexArray, Partition, Predictions
from ruler.data import TabularSplit, load_tabular, partition_rows, split
from ruler.experiment.cell import BASELINE_ROWS, BASELINE_SEED, GALLERY_ROWS, MeasuredModel, Scores, divide_by_norms
from ruler.metrics import m4
from ruler.metrics.outputs import accuracy, membership_inference
from ruler.metrics.paper import rank_within

if TYPE_CHECKING:
    import torch  # only the processes that run models pay for loading it

Forward = Callable[[Any], "tuple[torch.Tensor, torch.Tensor]"]
"""Rows (n, d) -> representations (n, p) and logits (n, n_classes), in eval mode."""

_PRODUCTS = {"cpu": 1 << 20, "cuda": 1 << 27}
"""Float64 products per block: they stay in a CPU's cache, or keep a GPU busy."""

_MOST_TIED = 2  # gallery rows that may be nearest within rounding; among distinct records three are a collapsed model
_ROUNDING = 16 * 2.0**-52  # of a product and of a similarity, per column, with room to spare


@dataclass(frozen=True, eq=False)
class Records:
    """The records of one partition, as the paper measures them; tensors are on the device where models run.

    Args:
        parts: Training and test arrays.
        partition: Rows to forget and to retain.
        train, test, classes: Features (n, d) of all training and test records, and classes (n_train,).
        distinct: (n, d) distinct rows among those whose representations are read. Identical records go through
            a model once, so that their representations tie exactly whatever the product library does.
        forgotten: Rows of ``train`` to forget.
        forget, baseline, gallery: Rows of ``distinct`` for the forget records, M2's baseline (a draw of 500 retain
            records) and M4's gallery (the first 2,000 retain records).
    """

    parts: TabularSplit
    partition: Partition
    train: "torch.Tensor"
    test: "torch.Tensor"
    classes: "torch.Tensor"
    distinct: "torch.Tensor"
    forgotten: "torch.Tensor"
    forget: "torch.Tensor"
    baseline: "torch.Tensor"
    gallery: "torch.Tensor"

    @cached_property
    def distinct_gallery(self) -> "tuple[torch.Tensor, IndexArray, torch.Tensor]":
        """The gallery's distinct rows, for each gallery record its place among them, and which occur several times."""
        torch = load_optional("torch", "running models")
        rows, place, counts = torch.unique(self.gallery, return_inverse=True, return_counts=True)
        return rows, place.cpu().numpy(), counts > 1


@lru_cache(maxsize=2)
def load_parts(dataset: str) -> TabularSplit:
    """The dataset, split; kept while a process works on it."""
    return split(load_tabular(dataset))


@lru_cache(maxsize=2)
def place_parts(parts: TabularSplit, device: str) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Training features, test features and training classes on a device; kept while a process works on them."""
    torch = load_optional("torch", "running models")
    train, test = (torch.as_tensor(part, device=device) for part in (parts.train_features, parts.test_features))
    return train, test, torch.as_tensor(parts.train_target, device=device)


def make_records(parts: TabularSplit, fraction: float, forget_seed: int, *, device: str = "cpu") -> Records:
    """Partition the training rows and choose what is measured.

    Example:
        >>> records = make_records(load_parts("breast_cancer"), 0.05, 999)
        >>> len(records.forget), len(records.baseline), len(records.gallery)
        (22, 433, 433)
    """
    partition = partition_rows(len(parts.train_target), fraction, seed=forget_seed)
    n_retain = len(partition.retain)
    drawn = np.random.RandomState(BASELINE_SEED).choice(n_retain, min(BASELINE_ROWS, n_retain), replace=False)
    groups = (partition.forget, partition.retain[drawn], partition.retain[:GALLERY_ROWS])
    rows = parts.train_features[np.concatenate(groups)]
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    measured = np.split(place.reshape(-1), np.cumsum([len(group) for group in groups])[:-1])
    torch = load_optional("torch", "running models")
    tensors = (torch.as_tensor(array, device=device) for array in (distinct, partition.forget, *measured))
    return Records(parts, partition, *place_parts(parts, device), *tensors)


def measure_models(forwards: Sequence[Forward], records: Records) -> list[MeasuredModel]:
    """Measure many models at once: a device is waited for twice, whatever their number.

    Args:
        forwards: The models' forward passes, on the device of the records.
        records: Of one partition.

    Raises:
        InputError: Representations or logits of some model that are not finite.
    """
    torch, (in_gallery, _, has_copies) = load_optional("torch", "running models"), records.distinct_gallery
    rows = torch.stack([forward(records.distinct)[0] for forward in forwards])  # (models, n, p)
    units = divide_by_norms(rows.flatten(0, 1)).view(rows.shape)
    outputs = [torch.stack(part) for part in zip(*(_read_outputs(run, records) for run in forwards), strict=True)]
    gallery = units[:, in_gallery]
    to_forget, forget_holds = nearest_in_gallery(units[:, records.forget], gallery)
    to_gallery, gallery_holds = nearest_in_gallery(gallery, gallery, is_self=True)
    to_copy = (gallery != 0).any(dim=2).to(to_gallery)  # an identical record is as similar as can be
    to_gallery = to_copy.where(has_copies, to_gallery)
    found = _fetch([to_forget, to_gallery, forget_holds & gallery_holds, *outputs])
    return [
        MeasuredModel(compared, len(records.forget), _score(representations, records, *own))
        for compared, representations, own in zip(
            units[:, torch.cat([records.forget, records.baseline])], rows, zip(*found, strict=True), strict=True
        )
    ]


def _read_outputs(forward: Forward, records: Records) -> "tuple[torch.Tensor, ...]":
    """Count right and unusable answers among the retain records; return the logits of forget and test records."""
    logits = forward(records.train)[1]
    is_right, is_bad = logits.argmax(dim=1) == records.classes, ~logits.isfinite().all(dim=1)
    n_right, n_bad = (is_so.sum() - is_so[records.forgotten].sum() for is_so in (is_right, is_bad))
    return n_right, n_bad, logits[records.forgotten], forward(records.test)[1]


def _fetch(parts: "Sequence[torch.Tensor]") -> list[FloatArray]:
    """Turn tensors (models, ...) into NumPy arrays, in one transfer."""
    torch = load_optional("torch", "running models")
    flat: FloatArray = torch.cat([part.reshape(len(part), -1).double() for part in parts], dim=1).cpu().numpy()
    cuts = np.cumsum([part[0].numel() for part in parts])[:-1]
    return [values.reshape(part.shape) for values, part in zip(np.split(flat, cuts, axis=1), parts, strict=True)]


def _score(
    representations: "torch.Tensor",
    records: Records,
    to_forget: FloatArray,
    to_gallery: FloatArray,
    holds: float,
    n_right: float,
    n_bad: float,
    forget_logits: FloatArray,
    test_logits: FloatArray,
) -> Scores:
    """Score what needs one model alone."""
    if n_bad:
        raise InputError(f"retain must have finite logits; got NaN or inf in {n_bad:.0f} rows. Repair the model.")
    forget = Predictions(forget_logits, records.parts.train_target[records.partition.forget])
    test = Predictions(test_logits, records.parts.test_target)
    if holds:
        rank = float(rank_within(to_forget, to_gallery[records.distinct_gallery[1]]).mean())
    else:
        rank = m4(representations[records.forget], representations[records.gallery])
    return {
        "m4": rank,
        "mia": membership_inference(forget, test),
        "forget_accuracy": accuracy(forget),
        "retain_accuracy": float(n_right / len(records.partition.retain)),
        "test_accuracy": accuracy(test),
    }


def nearest_in_gallery(
    queries: "torch.Tensor", base: "torch.Tensor", *, is_self: bool = False
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """How similar is the most similar base row of each query, in many models at once? The bits of ``find_neighbors``.

    Products name the rows that may be nearest, and these are compared exactly. Nothing waits for the device: no shape
    depends on what is found.

    Args:
        queries: (models, n, p) rows of norm 1 or 0, float64.
        base: (models, m, p) the same.
        is_self: The queries are the base; row i is then no neighbour of itself.

    Returns:
        Similarities (models, n), and for each model whether they hold, (models,): not where more rows tie than were
        compared. Use ``find_neighbors`` then.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]], dtype=torch.float64)
        >>> similarity, holds = nearest_in_gallery(rows, rows, is_self=True)
        >>> [round(value, 12) for value in similarity[0].tolist()], holds.tolist()
        ([0.6, 0.8, 0.8], [True])
    """
    n_models, n_queries = queries.shape[:2]
    nearest = queries.new_empty(n_models, n_queries)
    holds = queries.new_ones(n_models).bool()
    most = _PRODUCTS.get(queries.device.type, _PRODUCTS["cuda"])
    for start, stop in iterate_blocks(n_queries, max(1, most // (n_models * base.shape[1]))):
        block = queries[:, start:stop]
        products = block @ base.mT
        if is_self:
            products.diagonal(offset=start, dim1=1, dim2=2).fill_(-float("inf"))
        best, value = _compare_largest(block, base, products)
        floor = value - _ROUNDING * (base.shape[2] + 4)
        for _ in range(_MOST_TIED - 1):
            similarity, value = _compare_largest(block, base, products)
            best = similarity.where(value >= floor, best).maximum(best)
        nearest[:, start:stop] = best
        is_settled = (products.amax(dim=2) < floor) | (block == 0).all(dim=2)  # a zero row is as far from all
        holds &= is_settled.all(dim=1)
    return nearest, holds


def _compare_largest(
    queries: "torch.Tensor", base: "torch.Tensor", products: "torch.Tensor"
) -> tuple["torch.Tensor", "torch.Tensor"]:
    """Find the exact similarity at the largest product of each query, and that product, which is struck out."""
    value, index = products.max(dim=2, keepdim=True)
    found = base.gather(1, index.expand(-1, -1, base.shape[2]))
    products.scatter_(2, index, -float("inf"))
    similarity = similarity_of_unit_rows(queries.flatten(0, 1), found.flatten(0, 1))
    return similarity.view(value.shape[:2]), value[:, :, 0]
