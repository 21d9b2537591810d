"""What an audit is given, checked: models layer by layer, and what is known of the records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ruler.auditing.alignment import compare_through, fit_map, judge_pairing
from ruler.auditing.findings import Pairing
from ruler.auditing.settings import AuditSettings
from ruler.core.arithmetic import unit_rows
from ruler.core.stacked import StackedRows
from ruler.core.types import FloatArray, IndexArray, Neighbors
from ruler.metrics.paper import compare_rows
from ruler.neighbors import Searcher, find_neighbors

Side = Literal["forget", "retain", "held_out"]
SIDES: tuple[Side, ...] = ("forget", "retain", "held_out")
SideRows = Mapping[Side, npt.NDArray[Any]]
SideScores = dict[Side, FloatArray]

LEAST_ORACLES = 2
"""So many tell how much training runs differ by chance, if held-out records are no fair comparison."""

N_MEMBERS = 2000
"""Most retain records that stand for known members: enough to tell them from any number of held-out records."""


@dataclass(frozen=True, eq=False)
class LayerRows:
    """One model at one layer; what is measured of it is measured when first asked for, and kept."""

    rows: SideRows  # (n, p) by side, finite, the same records in the same order for every model
    norms: Mapping[Side, FloatArray]  # (n,) of the rows, by side
    losses: Mapping[Side, FloatArray] | None  # (n,) by side; None where the model's losses are not known
    settings: AuditSettings  # of the audit
    # how losses become scores: "confidence" of a class, "likelihood" per token, "error" squared
    loss_kind: Literal["confidence", "likelihood", "error"]
    halves: tuple[IndexArray, IndexArray]  # retain rows to fit a map between models on, and rows to compare
    members: IndexArray  # retain rows that stand for known members
    classes: Mapping[Side, npt.NDArray[np.intp]] | None = None  # (n,) codes by side; None where labels are no classes
    # (n,) by side: losses after the model relearned the other half of all records; None where that was not tried
    relearned: Mapping[Side, FloatArray] | None = None
    reference: IndexArray | None = None  # retain rows that M4 ranks against, drawn with replacement; None for all
    original: "LayerRows | None" = None  # the original model at the same layer, for the unlearned one
    search: Searcher = find_neighbors  # who searches neighbours; the answer does not depend on it
    # whether retain records are looked up among each other: M4 ranks in the audited model alone, and it takes longest
    ranks_retain: bool = True
    _pairings: "dict[LayerRows, Pairing]" = field(default_factory=dict, repr=False)
    _compared: "dict[tuple[LayerRows, bool], SideScores]" = field(default_factory=dict, repr=False)
    _maps: "dict[LayerRows, tuple[FloatArray, FloatArray]]" = field(default_factory=dict, repr=False)

    @cached_property
    def nearest(self) -> dict[Side, Neighbors]:
        """Nearest retain record (k=1, a retain record itself left out); of retain rows those in ``reference`` only.

        Retain rows are missing where they are not ranked.
        """
        retain, reference = self.rows["retain"], self.reference if self.ranks_retain else None
        queries: dict[Side, Any] = {side: rows for side, rows in self.rows.items() if side != "retain"}
        if reference is not None:
            queries["retain"] = retain[reference]
        # one search for all of them: the retain rows take longest to prepare
        best = self.search(StackedRows(list(queries.values())), retain, k=1 if reference is None else 2)
        ends = np.cumsum([len(rows) for rows in queries.values()])
        own = np.full(ends[-1], -1)
        if reference is not None:
            own[-len(reference) :] = reference
        best = _leave_out(best, own)
        spans = {side: slice(end - len(queries[side]), end) for side, end in zip(queries, ends, strict=True)}
        found = {side: Neighbors(best.similarity[span], best.index[span]) for side, span in spans.items()}
        if self.ranks_retain and reference is None:
            found["retain"] = self.search(retain, retain, exclude_self=True)
        return found

    @cached_property
    def log_norms(self) -> SideScores:
        """Logarithm of each row's norm; rows of norm 0 count as the least float."""
        least = np.finfo(np.float64).tiny
        return {side: np.log(np.maximum(norms, least)) for side, norms in self.norms.items()}

    def pair_with(self, other: "LayerRows") -> Pairing:
        """Whether two models share their axes, and whether similarities are to be taken through a map."""
        if other not in self._pairings:
            rows = self.rows["retain"], other.rows["retain"]
            self._pairings[other] = judge_pairing(
                *rows,
                self.settings.align,
                self.halves,
                lambda: self._map_to(other)[1],
                self.compare(other, is_aligned=False)["retain"] if rows[0].shape == rows[1].shape else None,
            )
        return self._pairings[other]

    def map_to(self, other: "LayerRows") -> FloatArray:
        """The orthogonal map to another model's axes."""
        return self._map_to(other)[0]

    def _map_to(self, other: "LayerRows") -> tuple[FloatArray, FloatArray]:
        """The map to another model's axes, and the similarities through it of the retain records that judge it."""
        if other not in self._maps:
            fitted, judged = self.halves
            rows = self.rows["retain"], other.rows["retain"]
            turn = fit_map(*rows, fitted)
            self._maps[other] = turn, compare_through(*rows, turn, judged)
        return self._maps[other]

    def compare(self, other: "LayerRows", *, is_aligned: bool) -> SideScores:
        """Similarity of each record to itself in another model.

        Args:
            other: The other model.
            is_aligned: Through a map that is fitted on half of the retain records; under "retain" only the others
                (``halves[1]``) are compared then.
        """
        key = other, is_aligned
        if key not in self._compared and is_aligned:
            turn, of_retain = self._map_to(other)
            self._compared[key] = {
                side: of_retain if side == "retain" else compare_through(rows, other.rows[side], turn)
                for side, rows in self.rows.items()
            }
        elif key not in self._compared:
            self._compared[key] = {
                side: compare_rows(rows, other.rows[side], ("model", "other"), (self.norms[side], other.norms[side]))
                for side, rows in self.rows.items()
            }
        return self._compared[key]

    def take_unit(self, side: Side, rows: IndexArray) -> FloatArray:
        """Some rows of a side at norm 1."""
        taken: FloatArray = unit_rows(np.asarray(self.rows[side][rows], dtype=np.float64), self.norms[side][rows])
        return taken

    def unit(self, sides: Sequence[Side]) -> FloatArray:
        """Rows of some sides at norm 1, one side after the other."""
        return np.concatenate(
            [unit_rows(np.asarray(self.rows[side], dtype=np.float64), self.norms[side]) for side in sides]
        )


def _leave_out(best: Neighbors, own: IndexArray) -> Neighbors:
    """The first neighbour of each query, or the second where the first is the row ``own`` (n,), itself."""
    place = (best.index[:, :1] == own[:, None]).astype(np.int64)
    return Neighbors(np.take_along_axis(best.similarity, place, axis=1), np.take_along_axis(best.index, place, axis=1))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Checked input of an audit. Records stand in an order that follows from their content, not from the files."""

    unlearned: Mapping[str, LayerRows]  # the audited model by layer, in forward order; the last is the main one
    # models that were never trained on the forget records, by layer; empty without any
    oracles: Sequence[Mapping[str, LayerRows]]
    original: Mapping[str, LayerRows] | None  # the model before unlearning, by layer; None if it was not given
    # other models that never saw forget or held-out records, by layer; of some only the losses are known
    references: Sequence[Mapping[str, LayerRows]]
    ids: Mapping[Side, npt.NDArray[Any]]  # by side, (n,) names of the records; row numbers where none were given
    groups: Mapping[Side, npt.NDArray[Any]]  # by side, (n,) labels; sides without groups are missing
    settings: AuditSettings  # of the audit
    labels: Mapping[Side, npt.NDArray[Any]] = field(default_factory=dict)  # by side, where known
    # by side, what forget and held-out records are matched on; empty if they are not
    strata: Mapping[Side, npt.NDArray[Any]] = field(default_factory=dict)
    # by side, (n, d) numbers that describe the records apart from any model, where known
    features: Mapping[Side, FloatArray] = field(default_factory=dict)
    named: frozenset[Side] = frozenset()  # sides whose ids are names, and not just the numbers of their rows
    # (n,) position of each forget record in what was given
    order: IndexArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    draw_seed: int = 0  # of the permutations; it follows from the records, so that nobody can choose it
    n_unmatched: int = 0  # held-out records that were left out so that strata match
    # whether held-out records are a fair comparison for the forget records, as far as the guard can tell
    is_fair: bool = True
    # whether known members are a fair comparison for the held-out records
    has_comparable_members: bool = True
    # ``claimed_ids[model][side]``: the ids that `Embeddings` carried, for models that came with them
    claimed_ids: Mapping[str, Mapping[Side, npt.NDArray[Any]]] = field(default_factory=dict)
    # names of the columns of the unlearned model's rows, where they came as a table
    columns: tuple[str, ...] | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that were read; a single one without a name is the empty text."""
        return tuple(self.unlearned)

    @property
    def main_layer(self) -> str:
        """The last layer: what the paper's numbers and the guards are about."""
        return self.layers[-1]

    @property
    def main(self) -> LayerRows:
        """The unlearned model at the main layer."""
        return self.unlearned[self.main_layer]

    @property
    def main_oracles(self) -> list[LayerRows]:
        """The oracles at the main layer."""
        return [oracle[self.main_layer] for oracle in self.oracles]

    @property
    def has_oracle(self) -> bool:
        """Whether an oracle was given."""
        return bool(self.oracles)

    @property
    def has_original(self) -> bool:
        """Whether the original model was given."""
        return self.original is not None

    @property
    def has_held_out(self) -> bool:
        """Whether the models came with held-out records."""
        return "held_out" in self.ids

    def has(self, needs: Sequence[str]) -> bool:
        """Whether the models carry all that a contrast needs."""
        main = self.main
        known = {
            "oracle": bool(self.oracles),
            "original": self.original is not None,
            "losses": main.losses is not None,
            "classes": main.classes is not None,
            "relearned": main.relearned is not None,
        }
        return all(known[need] for need in needs)

    @property
    def run_freedom(self) -> float | None:
        """Degrees of freedom of what training runs add: two or more oracles, if held-out records are unfair.

        None where permutations hold instead.
        """
        return None if self.is_fair or len(self.oracles) < LEAST_ORACLES else float(len(self.oracles) - 1)

    @property
    def has_losses(self) -> bool:
        """Whether the unlearned model's losses are known."""
        return self.main.losses is not None

    @property
    def neutral(self) -> LayerRows | None:
        """A model at the main layer that was trained on neither forget nor held-out records; None if there is none."""
        found = [one for one in [*self.oracles, *self.references] if one[self.main_layer].rows]
        return found[0][self.main_layer] if found else None

    @property
    def pairing(self) -> Pairing | None:
        """Of the first oracle and the unlearned model; None without an oracle."""
        return self.main.pair_with(self.main_oracles[0]) if self.oracles else None

    @property
    def models(self) -> dict[str, LayerRows]:
        """Every model at the main layer: unlearned, original, oracle, oracle 2, ..."""
        found = {"unlearned": self.main}
        if self.original is not None:
            found["original"] = self.original[self.main_layer]
        for number, oracle in enumerate(self.main_oracles, 1):
            found["oracle" if number == 1 else f"oracle {number}"] = oracle
        for number, reference in enumerate(self.references, 1):
            if reference[self.main_layer].rows:
                found["reference" if number == 1 else f"reference {number}"] = reference[self.main_layer]
        return found

    def count_units(self, side: Side) -> int:
        """Groups of a side where they are named, else its records."""
        return len(np.unique(self.groups[side])) if side in self.groups else len(self.ids[side])
