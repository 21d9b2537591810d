"""A grid of settings -> the choice of one, by a rehearsal on retain records: no forget record is read.

The retain records are cut in three: some are forgotten in the rehearsal, some are kept from all of its models, and the
others are retained. An original and an oracle are trained on them, every candidate unlearns the rehearsal's forget set,
and the one whose model answers most like the oracle is chosen.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from ruler.core.errors import InputError
from ruler.core.types import FloatArray, IndexArray
from ruler.experiment.compare.data import VALIDATION, cut_rows
from ruler.experiment.compare.settings import GRID, list_combinations
from ruler.experiment.compare.trainers import TimedTrainer
from ruler.experiment.grid import Cell

_LARGEST_FORGET = 0.5  # share of what is left
_SEED = 7


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Retain records in their roles, the original of the rehearsal, and what its oracle says of every record.

    Args:
        parts: Forget, retain and validation records of the rehearsal.
        original: Trained on its forget and retain records.
        oracle_losses: (n,) of the model that was trained on its retain records alone.
    """

    parts: tuple[IndexArray, IndexArray, IndexArray]
    original: nn.Module
    oracle_losses: FloatArray


def cut_rehearsal(
    retain: IndexArray, n_forget: int, groups: npt.NDArray[Any] | None
) -> tuple[IndexArray, IndexArray, IndexArray]:
    """Forget, retain and validation records of a rehearsal: a tenth validates, and as many as are really forgotten go.

    Example:
        >>> [len(part) for part in cut_rehearsal(np.arange(200), 30, None)]
        [30, 150, 20]
    """
    first = cut_rows(retain, VALIDATION, groups, _SEED)
    rest = retain[first.retain]
    second = cut_rows(rest, min(n_forget / len(rest), _LARGEST_FORGET), groups, _SEED)
    return rest[second.forget], rest[second.retain], retain[first.forget]


def rehearse(cell: Cell, trainer: TimedTrainer, parts: tuple[IndexArray, IndexArray, IndexArray]) -> Rehearsal:
    """Train the two models of a rehearsal, from the cell's seed."""
    forget, retain, _ = parts
    original = trainer.inner.train(cell, np.sort(np.concatenate([forget, retain])), cell.seed)
    oracle = trainer.inner.train(cell, retain, cell.seed)
    return Rehearsal(parts, original, trainer.read(oracle).losses)


def score_losses(losses: FloatArray, oracle_losses: FloatArray, parts: tuple[IndexArray, ...]) -> float:
    """How far a model is from the oracle: mean over parts of the distance between mean probabilities of the truth.

    A record's probability is exp(-loss). In [0, 1]; 0 is an oracle.

    Example:
        >>> score_losses(np.log([2.0, 4.0]), np.log([4.0, 4.0]), (np.array([0]), np.array([1])))
        0.125
    """
    found, wanted = np.exp(-losses), np.exp(-oracle_losses)
    return float(np.mean([abs(found[rows].mean() - wanted[rows].mean()) for rows in parts]))


def choose_settings(cell: Cell, rehearsal: Callable[[], Rehearsal], trainer: TimedTrainer) -> tuple[Cell, str]:
    """The cell with the settings that a rehearsal chooses of its grid, and all candidates' scores.

    Args:
        cell: Its options hold a grid, or none: then it stays as it is.
        rehearsal: Gives the rehearsal, which cells share.
        trainer: Of the models.

    Returns:
        The cell, and JSON of ``candidates``, each with ``settings``, ``score`` and ``reason``, ``chosen``, the place of
        the best, and ``seconds``, what trying took; empty without a grid.

    Raises:
        InputError: All candidates fail.
    """
    options: dict[str, Any] = json.loads(cell.options) if cell.options else {}
    if GRID not in options:
        return cell, ""
    grid, stage = options.pop(GRID), rehearsal()
    started_s = trainer.tell_s()
    candidates: list[dict[str, Any]] = []
    for values in list_combinations(grid):
        tried = replace(cell, options=json.dumps(options | values, sort_keys=True))
        score, reason = None, ""
        try:
            model = trainer.unlearn(tried, stage.original, stage.parts[0], stage.parts[1])
            score = score_losses(trainer.read(model).losses, stage.oracle_losses, stage.parts)
            score, reason = (score, "") if np.isfinite(score) else (None, "Its losses are no numbers.")
        except Exception as error:  # a candidate that diverges is no reason to stop
            reason = f"{type(error).__name__}: {error}"
        candidates.append({"settings": options | values, "score": score, "reason": reason})
    known = [place for place, one in enumerate(candidates) if one["score"] is not None]
    if not known:
        raise InputError(f"one of {len(candidates)} settings must work; got failures. {candidates[0]['reason']}")
    best = min(known, key=lambda place: candidates[place]["score"])
    record = {"candidates": candidates, "chosen": best, "seconds": trainer.tell_s() - started_s}
    return replace(cell, options=json.dumps(candidates[best]["settings"], sort_keys=True)), json.dumps(record)
