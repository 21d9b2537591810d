"""What an audit is given, checked: the embeddings of each model, side by side, with ids and groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy.typing as npt

from ruler.audit.settings import AuditSettings
from ruler.core.types import Neighbors

Side = Literal["forget", "retain", "held_out"]
ModelName = Literal["unlearned", "oracle", "original"]
SIDES: tuple[Side, ...] = ("forget", "retain", "held_out")
MODELS: tuple[ModelName, ...] = ("unlearned", "oracle", "original")


@dataclass(frozen=True, eq=False)
class Evidence:
    """Checked input of an audit: finite (n, p) arrays, the same records in the same order for every model.

    Args:
        embeddings: ``embeddings[model][side]``, (n, p); models that were not given and "held_out" may be missing.
        ids: By side, (n,) names of the records; row numbers where none were given.
        groups: By side, (n,) labels; sides without groups are missing.
        nearest: ``nearest[model][side]``: nearest retain records (k=1; a retain record itself left out) of
            every side, for the unlearned and the original model.
        claimed_ids: ``claimed_ids[model][side]``: the ids that `Embeddings` carried, for models that came with them.
        settings: Of the audit.
    """

    embeddings: Mapping[ModelName, Mapping[Side, npt.NDArray[Any]]]
    ids: Mapping[Side, npt.NDArray[Any]]
    groups: Mapping[Side, npt.NDArray[Any]]
    nearest: Mapping[ModelName, Mapping[Side, Neighbors]]
    settings: AuditSettings
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
        """Whether every model came with held-out records."""
        return "held_out" in self.ids
