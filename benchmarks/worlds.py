"""Records of a table or of images in which the truth about forgetting is known, and classifiers trained on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from ruler.auditing import AuditSettings, audit_evidence, gather_evidence
from ruler.auditing.contrasts import OWN
from ruler.auditing.findings import Report
from ruler.core.types import Embeddings, FloatArray, IndexArray, Predictions
from ruler.data import DATASETS, load_faces, load_images, load_tabular
from ruler.metrics.outputs import losses
from ruler.models import MODELS
from ruler.models.tabular_mlp import TabularMLP
from ruler.neighbors import find_neighbors
from ruler.training.classifier import train_classifier
from ruler.training.ensemble import EnsembleMember, train_ensemble
from ruler.training.settings import TrainingSettings

SIDES = ("forget", "retain", "held_out")


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model says of every record of a world: (n, p) representations and (n, n_classes) logits."""

    rows: npt.NDArray[np.float32]
    logits: FloatArray


@dataclass(frozen=True, eq=False)
class World:
    """Records of one draw, without row on two sides.

    Args:
        inputs: (n, d), standardised on the retain records, or images (n, c, h, w).
        labels: (n,) as the records carry them.
        sides: Rows of the forget, retain and held-out records, and of others under further names.
        n_classes: Columns of the logits.
        settings: How originals and oracles are trained.
        device: Where models are trained and read.
    """

    inputs: npt.NDArray[np.float32]
    labels: IndexArray
    sides: Mapping[str, IndexArray]
    n_classes: int
    settings: TrainingSettings
    device: str = "cpu"
    architecture: str = field(default="tabular_mlp")

    @property
    def both(self) -> IndexArray:
        """Rows that the original is trained on."""
        return np.concatenate([self.sides["retain"], self.sides["forget"]])

    def pair(self, rows: IndexArray, labels: IndexArray | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and labels of some rows, on the device."""
        known = self.labels if labels is None else labels
        inputs, classes = torch.from_numpy(self.inputs[rows]), torch.from_numpy(known[rows])
        return inputs.to(self.device, **self._layout), classes.to(self.device)

    @property
    def _layout(self) -> dict[str, Any]:
        """How tensor cores want images, and their models."""
        return {"memory_format": torch.channels_last} if self.inputs.ndim == 4 and self.device != "cpu" else {}

    def build(self) -> nn.Module:
        """A model with fresh weights, by torch's stream."""
        model: nn.Module = MODELS[self.architecture](self.inputs.shape[1:], self.n_classes)
        return model.to(self.device, **self._layout)

    def train(
        self,
        rows: IndexArray,
        seed: int,
        *,
        length: float = 1.0,
        labels: IndexArray | None = None,
        on_epoch: Callable[[int, nn.Module], None] | None = None,
    ) -> nn.Module:
        """A model trained on these rows for so many times the usual epochs, perhaps with other labels.

        Perceptrons in full batches on a CPU are trained as members of an ensemble, which is several times faster.
        """
        settings = replace(self.settings, epochs=max(1, round(length * self.settings.epochs)))
        known = self.labels if labels is None else labels
        if self.architecture == "tabular_mlp" and settings.batch_size is None and on_epoch is None:
            member = [EnsembleMember(seed)]
            found = train_ensemble(self.inputs[rows], known[rows], member, settings, n_classes=self.n_classes)
            model = TabularMLP(self.inputs.shape[1], self.n_classes)
            model.load_state_dict(found.state_dict(0))
            return model.eval()
        made: list[nn.Module] = []

        def build() -> nn.Module:
            made.append(self.build())
            return made[0]

        def look(epoch: int, loss: float) -> None:
            if on_epoch is not None:
                on_epoch(epoch, made[0])

        return train_classifier(build, self.pair(rows, labels), seed=seed, settings=settings, on_epoch=look)

    @torch.inference_mode()
    def read(self, model: nn.Module) -> Reading:
        """Representations, which the last Linear reads, and logits of all records."""
        model.eval()
        caught: list[torch.Tensor] = []
        head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
        handle = head.register_forward_pre_hook(lambda module, inputs: caught.append(inputs[0]))
        try:
            blocks = torch.split(torch.from_numpy(self.inputs), 1024)
            logits = torch.cat([model(block.to(self.device)) for block in blocks])
        finally:
            handle.remove()
        return Reading(torch.cat(caught).float().cpu().numpy(), logits.double().cpu().numpy())

    def predict(self, reading: Reading, side: str) -> Predictions:
        """What the model answers for the records of a side."""
        rows = self.sides[side]
        return Predictions(reading.logits[rows], self.labels[rows])

    def gather(self, reading: Reading) -> tuple[Embeddings, ...]:
        """Forget, retain and held-out records of a model, for an audit."""
        return tuple(
            Embeddings(
                reading.rows[self.sides[side]],
                ids=self.sides[side],
                labels=self.labels[self.sides[side]],
                losses=losses(self.predict(reading, side)),
            )
            for side in SIDES
        )

    def audit(self, unlearned: Reading, oracles: Sequence[Reading], original: Reading) -> Report:
        """An audit of a model by its outputs too, with 999 permutations."""
        evidence = gather_evidence(
            unlearned=self.gather(unlearned),
            oracle=[self.gather(one) for one in oracles],
            original=self.gather(original),
            settings=AuditSettings(n_permutations=999),
            search=partial(find_neighbors, device=self.device),
        )
        models = {"unlearned": unlearned, "oracle": oracles[0], "original": original}
        answers = {role: self.measure_skill(one) for role, one in models.items()}
        return audit_evidence(evidence, answers=answers, contrasts=OWN)

    def measure_skill(self, reading: Reading) -> dict[str, float]:
        """Share of right answers on each side, as an audit wants it."""
        is_right = reading.logits.argmax(1) == self.labels
        return {f"{side}_accuracy": float(is_right[self.sides[side]].mean()) for side in SIDES}


def list_remaining(report: Report) -> dict[str, float]:
    """What remains in what the model says and in what its layers hold, with both ends of the intervals.

    Returns:
        ``outputs_remaining``, ``outputs_remaining_low``, ``outputs_remaining_high`` and the same of ``layers``; absent
        where nothing could be measured.
    """
    families = {"outputs": report.outputs.remaining, "layers": report.layers.remaining}
    return {
        f"{name}_remaining{end}": value
        for name, one in families.items()
        if one is not None
        for end, value in (("", one.value), ("_low", one.low), ("_high", one.high))
    }


def make_world(
    dataset: str,
    memory: str,
    draw: int,
    sizes: Mapping[str, int],
    settings: TrainingSettings,
    *,
    architecture: str | None = None,
    shrink: int = 1,
    device: str = "cpu",
) -> World:
    """Draw a world.

    Args:
        dataset: Key of a table, of images or of faces, whose images are drawn one by one.
        memory: ``true`` labels, or ``planted`` ones: all records but the retain ones carry a wrong label (those of a
            side "test" their own), so that forget and held-out records stay alike, and a model that gives a forget
            record's label has memorised it.
        draw: Seed of the draw.
        sizes: How many records each side has; ``retain``, ``forget`` and ``held_out`` are needed.
        settings: How originals and oracles are trained.
        architecture: Key of `MODELS`; by default the perceptron or the small CNN.
        shrink: Images are averaged over squares of so many pixels.
        device: Where models are trained and read.
    """
    rng = np.random.default_rng([21, draw, *map(ord, dataset)])
    inputs, target, n_classes = _load(dataset, shrink)
    order = rng.permutation(len(target))
    if sum(sizes.values()) > len(order):
        raise ValueError(f"sizes must sum to at most {len(order)} records; got {sum(sizes.values())}.")
    parts = np.split(order[: sum(sizes.values())], np.cumsum(list(sizes.values()))[:-1])
    drawn = dict(zip(sizes, (np.sort(part) for part in parts), strict=True))
    kept = np.concatenate(list(drawn.values()))
    starts = np.cumsum([0, *map(len, drawn.values())])
    sides = {side: np.arange(starts[i], starts[i + 1]) for i, side in enumerate(drawn)}
    labels = target[kept].astype(np.int64)
    if memory == "planted":
        others = np.concatenate([rows for side, rows in sides.items() if side not in ("retain", "test")])
        labels[others] = move_labels(labels[others], n_classes, rng)
    axes = 0 if inputs.ndim == 2 else (0, 2, 3)
    retained = inputs[drawn["retain"]]
    mean, spread = retained.mean(axis=axes, keepdims=True), retained.std(axis=axes, keepdims=True)
    scaled = (inputs[kept] - mean) / np.where(spread > 0, spread, 1.0)
    usual = "tabular_mlp" if inputs.ndim == 2 else "small_cnn"
    scaled = np.clip(scaled, -20, 20).astype(np.float32)
    return World(scaled, labels, sides, n_classes, settings, device, architecture or usual)


def move_labels(labels: IndexArray, n_classes: int, rng: np.random.Generator) -> IndexArray:
    """Another class for each record, drawn evenly.

    Example:
        >>> move_labels(np.array([0, 1, 1]), 2, np.random.default_rng(0)).tolist()
        [1, 0, 0]
    """
    return np.asarray((labels + rng.integers(1, n_classes, size=len(labels))) % n_classes)


def _load(dataset: str, shrink: int) -> tuple[npt.NDArray[Any], IndexArray, int]:
    kind = DATASETS[dataset].kind
    if kind == "table":
        table = load_tabular(dataset)
        return table.features, table.target, len(table.classes)
    if kind == "faces":
        faces = load_faces(dataset)
        images, target, classes = faces.images, faces.target, faces.classes
    else:
        parts = load_images(dataset)
        images = np.concatenate([parts.train.images, parts.test.images])
        target, classes = np.concatenate([parts.train.target, parts.test.target]), parts.train.classes
    images = images.transpose(0, 3, 1, 2)
    n, c, h, w = images.shape
    squares = images.reshape(n, c, h // shrink, shrink, w // shrink, shrink).astype(np.float32)
    return squares.mean(axis=(3, 5)), target, len(classes)
