"""The paper's loop, model by model on a CPU: trained models come from the cache or from published files."""

from functools import cache
from pathlib import Path
from typing import Any

import torch

from ruler.core.errors import InputError
from ruler.core.types import Partition
from ruler.experiment.cell import Workplace
from ruler.experiment.grid import Cell
from ruler.experiment.records import Records, load_parts, make_records
from ruler.experiment.scores import Answers, Run, Scores, ask
from ruler.experiment.settings import PAPER_FORGET_SEED, PAPER_RATE
from ruler.models.tabular_mlp import TabularMLP
from ruler.training.checkpoints import CheckpointStore, export_published, import_published
from ruler.training.classifier import train_tabular
from ruler.training.settings import TrainingSettings
from ruler.unlearning import METHODS, UnlearningSettings, unlearn


class ProtocolBench:
    """The models of cells that share a dataset.

    Args:
        dataset: Key of a tabular set.
        workplace: Where models are kept or imported from.
    """

    def __init__(self, dataset: str, workplace: Workplace) -> None:
        self._dataset, self._workplace = dataset, workplace
        self._store = CheckpointStore(workplace.models)
        self._records = cache(self._make_records)
        self._original = cache(self._make_original)
        self._ask_original = cache(lambda *key: ask(run_model(self._original(*key[:3])), self._records(*key[3:])))
        self._ask_oracle = cache(self._make_oracle_answers)

    def count_forget(self, cell: Cell) -> int:
        """Size of the cell's forget set."""
        return len(self._find_records(cell).forget)

    def ask_original(self, cell: Cell) -> Answers:
        """The original model of the cell's seed."""
        return self._ask_original(*_original_key(cell), cell.forget_fraction, cell.forget_seed)

    def ask_oracle(self, cell: Cell, seed: int) -> Answers:
        """The oracle of this seed for the cell's forget set."""
        return self._ask_oracle(seed, cell.batch_size, cell.models, cell.forget_fraction, cell.forget_seed)

    def ask_unlearned(self, cell: Cell) -> Answers:
        """The original after the cell's method."""
        records = self._find_records(cell)
        model = unlearn(
            cell.method,
            self._original(*_original_key(cell)),
            forget=records.pair(records.partition.forget),
            retain=records.pair(records.partition.retain),
            settings=choose_unlearning(cell),
        )
        assert isinstance(model, TabularMLP)  # unlearning works on a copy
        return ask(run_model(model), records)

    def audit_model(self, model: Answers, *, oracle: Answers, original: Answers | None = None) -> Scores:
        """Nothing: the tabular studies measure and test as the paper does."""
        return {}

    def export(self, cell: Cell, folder: Path) -> None:
        """Write the cell's original and oracle under the authors' file names."""
        fraction = cell.forget_fraction
        original = self._original(*_original_key(cell))
        oracle = self._make_oracle(cell.seed, cell.batch_size, cell.models, fraction, cell.forget_seed)
        export_published(original, folder, cell.dataset, cell.seed)
        export_published(oracle, folder, cell.dataset, cell.seed, fraction)

    def _find_records(self, cell: Cell) -> Records:
        return self._records(cell.forget_fraction, cell.forget_seed)

    def _make_records(self, fraction: float, forget_seed: int) -> Records:
        return make_records(load_parts(self._dataset), fraction, forget_seed)

    def _make_original(self, seed: int, batch_size: int | None, source: str) -> TabularMLP:
        if source == "imported":
            return self._import(seed)
        return self._train(seed, batch_size)

    def _make_oracle_answers(
        self, seed: int, batch_size: int | None, source: str, fraction: float, forget_seed: int
    ) -> Answers:
        model = self._make_oracle(seed, batch_size, source, fraction, forget_seed)
        return ask(run_model(model), self._records(fraction, forget_seed))

    def _make_oracle(
        self, seed: int, batch_size: int | None, source: str, fraction: float, forget_seed: int
    ) -> TabularMLP:
        if source == "imported" and forget_seed == PAPER_FORGET_SEED:
            return self._import(seed, fraction)
        return self._train(seed, batch_size, self._records(fraction, forget_seed).partition)

    def _train(self, seed: int, batch_size: int | None, partition: Partition | None = None) -> TabularMLP:
        parts = load_parts(self._dataset)
        return train_tabular(
            parts.train_features,
            parts.train_target,
            partition,
            seed=seed,
            settings=TrainingSettings(batch_size=batch_size),
            store=self._store,
        )

    def _import(self, seed: int, fraction: float | None = None) -> TabularMLP:
        folder = self._workplace.checkpoints
        if folder is None:
            raise InputError("checkpoints must name the folder that models are imported from; got None.")
        return import_published(folder, self._dataset, seed, fraction)


def _original_key(cell: Cell) -> tuple[int, int | None, str]:
    return cell.seed, cell.batch_size, cell.models


def choose_unlearning(cell: Cell) -> UnlearningSettings:
    """The method's settings at the cell's rate: epochs scale with it, as the paper ran its rate study.

    Example:
        >>> choose_unlearning(Cell("learning-rate", "adult", "scrub", 0.05, 0, 1e-4)).epochs
        2
    """
    kind: Any = METHODS[cell.method].settings
    rate = PAPER_RATE if cell.learning_rate is None else cell.learning_rate
    epochs = max(1, round(kind().epochs * rate / PAPER_RATE))
    teacher = {} if cell.teacher_seed is None else {"teacher_seed": cell.teacher_seed}
    settings: UnlearningSettings = kind(learning_rate=rate, epochs=epochs, batch_size=cell.batch_size, **teacher)
    return settings


def run_model(model: TabularMLP) -> Run:
    """The forward pass of a model in eval mode."""
    model.eval()

    @torch.inference_mode()
    def run(rows: object) -> tuple[torch.Tensor, torch.Tensor]:
        representations = model.penultimate(torch.as_tensor(rows))
        return representations, model.net[-1](representations)

    return run
