"""What an audit is given, checked and measured once: embeddings, ids, groups, neighbours, likeness to the oracle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from ruler.auditing.findings import Pairing
from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray, IndexArray, Neighbors

Side = Literal["forget", "retain", "held_out"]
ModelName = Literal["unlearned", "oracle", "original"]
SIDES: tuple[Side, ...] = ("forget", "retain", "held_out")
MODELS: tuple[ModelName, ...] = ("unlearned", "oracle", "original")


@dataclass(frozen=True, eq=False)
class OracleScores:
    """Similarity of a model's records to the same records in the oracle.

    Args:
        by_side: (n,) a side; under "retain" the rows in ``retain_rows`` only.
        retain_rows: Retain rows that were compared: all, or those that the map was not fitted on.
    """

    by_side: Mapping[Side, FloatArray]
    retain_rows: IndexArray


@dataclass(frozen=True, eq=False)
class Evidence:
    """Checked input of an audit: finite (n, p) arrays, the same records in the same order for every model.

    Args:
        embeddings: ``embeddings[model][side]``, (n, p); models that were not given and "held_out" may be missing.
        ids: By side, (n,) names of the records; row numbers where none were given.
        groups: By side, (n,) labels; sides without groups are missing.
        nearest: ``nearest[model][side]``: nearest retain record (k=1; a retain record itself left out) of every
            record, for the unlearned and the original model; under "retain" of the rows in ``reference`` only.
        plain_scores: By model (unlearned, original), similarity to the oracle as it is; empty without an oracle, or if
            widths differ.
        aligned_scores: The same after an orthogonal map; empty where it was not needed.
        pairing: Of oracle and unlearned model; None without an oracle.
        settings: Of the audit.
        reference: Retain rows that forget records are ranked against, drawn with replacement; None for all.
        claimed_ids: ``claimed_ids[model][side]``: the ids that `Embeddings` carried, for models that came with them.
    """

    embeddings: Mapping[ModelName, Mapping[Side, npt.NDArray[Any]]]
    ids: Mapping[Side, npt.NDArray[Any]]
    groups: Mapping[Side, npt.NDArray[Any]]
    nearest: Mapping[ModelName, Mapping[Side, Neighbors]]
    plain_scores: Mapping[ModelName, OracleScores]
    aligned_scores: Mapping[ModelName, OracleScores]
    pairing: Pairing | None
    settings: AuditSettings
    reference: IndexArray | None = None
    claimed_ids: Mapping[ModelName, Mapping[Side, npt.NDArray[Any]]] = field(default_factory=dict)

    @property
    def has_oracle(self) -> bool:
        """Whether an oracle was given."""
        return "oracle" in self.embeddings

    @property
    def has_original(self) -> bool:
        """Whether the original model was given."""
        return "original" in self.embeddings

    @property
    def has_held_out(self) -> bool:
        """Whether the models came with held-out records."""
        return "held_out" in self.ids

    @property
    def control(self) -> Literal["held_out", "retain"]:
        """The side that forget records are compared with."""
        return "held_out" if self.has_held_out else "retain"

    @property
    def oracle_scores(self) -> Mapping[ModelName, OracleScores]:
        """The similarities that the verdict rests on: aligned where that was chosen, else plain."""
        is_aligned = self.pairing is not None and self.pairing.is_aligned
        return self.aligned_scores if is_aligned else self.plain_scores
