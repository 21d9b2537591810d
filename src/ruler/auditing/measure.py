"""Evidence -> how forget records lie against held-out ones by every contrast, before any verdict."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ruler.auditing.beyond_oracle import find_p_values_beyond_oracle
from ruler.auditing.contrasts import CONTRASTS, Contrast
from ruler.auditing.controls import try_positive_control
from ruler.auditing.evidence import Evidence, SideScores
from ruler.auditing.findings import METRIC_NAME, Sensitivity, Test
from ruler.auditing.strands import Strand, find_p_values, make_strands
from ruler.core.errors import InputError
from ruler.stats.equivalence import Share, equivalence_p_value


@dataclass(frozen=True, eq=False)
class Measurement:
    """A contrast with its control: what the verdict is read from."""

    contrast: Contrast  # its row of the table
    scores: Mapping[str, SideScores]  # ``scores[layer]``: per record, by side, in the unlearned model
    strands: Sequence[Strand]  # place and spread at every layer; empty without held-out records
    test: Test  # how the p-values were found
    p_value: float  # are forget and held-out records alike in all strands?
    adjusted_p_value: float  # the same corrected for all contrasts that decide
    # whether the contrast was seen in the positive control; None where that could not be tried
    sensitivity: Sensitivity | None
    share: Share | None  # part of the positive control's contrast that is left; None where it was not seen
    # the corrected p-value without what the oracle shows of the records; NaN where no contrast differs
    beyond_oracle_p_value: float = math.nan

    @property
    def strongest(self) -> Strand:
        """Where forget and held-out records differ most."""
        return max(self.strands, key=lambda strand: abs(strand.effect.statistic))

    @property
    def place(self) -> Strand:
        """The place of the scores at the layer of the strongest strand."""
        return self._find("place")

    @property
    def spread(self) -> Strand:
        """The spread of the scores at the layer of the strongest strand."""
        return self._find("spread")

    @property
    def share_upper(self) -> float | None:
        """One-sided upper limit of the share left; None where there is none."""
        return None if self.share is None else self.share.upper

    def show_equivalence(self, margin: float) -> float:
        """p-value of the claim that place and spread lie within the margin at every layer."""
        found = [equivalence_p_value(strand.effect, margin) for strand in self.strands]
        return float(np.max(found)) if found else math.nan

    def _find(self, part: str) -> Strand:
        layer = self.strongest.layer
        return next(strand for strand in self.strands if strand.part == part and strand.layer == layer)


def measure_contrasts(evidence: Evidence, contrasts: Mapping[str, Contrast] = CONTRASTS) -> dict[str, Measurement]:
    """All contrasts of a table that this evidence can carry, by name.

    Those that decide are tested and corrected together; the others are tested alone, or share the test of a deciding
    contrast with the same score.

    Raises:
        InputError: A metric with a name that files cannot hold, or that does not give one finite number per record.
    """
    for name in contrasts:
        if not re.fullmatch(METRIC_NAME, name):
            raise InputError(f"metrics must be named by lower-case letters, digits and _; got {name!r}. Rename it.")
    has = {"oracle": evidence.has_oracle, "original": evidence.has_original, "losses": evidence.has_losses}
    usable = {name: one for name, one in contrasts.items() if all(has[need] for need in one.needs)}
    scores = {name: _score_layers(name, one, evidence) for name, one in usable.items()}
    strands = {name: make_strands(one, scores[name], evidence) for name, one in usable.items()}
    deciding = [name for name, one in usable.items() if one.decides]
    judged = find_p_values(deciding, strands, evidence)
    for name, one in usable.items():
        if not one.decides:
            same = [other for other in deciding if usable[other].score is one.score]
            p_value = (judged[same[0]] if same else find_p_values([name], strands, evidence)[name])[0]
            judged[name] = p_value, math.nan
    beyond: Mapping[str, float] = {}
    differs = any(judged[name][1] <= evidence.settings.alpha for name in deciding)
    if differs and evidence.has_oracle and not evidence.is_hybrid:
        beyond = find_p_values_beyond_oracle(deciding, strands, evidence)
    controls = try_positive_control({name: usable[name] for name in deciding}, strands, evidence)
    test: Test = "none" if not evidence.has_held_out else "hybrid" if evidence.is_hybrid else "permutation"
    found = {}
    for name, one in usable.items():
        numbers = *judged[name], *controls.get(name, (None, None)), beyond.get(name, math.nan)
        found[name] = Measurement(one, scores[name], strands[name], test, *numbers)
    return found


def _score_layers(name: str, contrast: Contrast, evidence: Evidence) -> dict[str, SideScores]:
    """Scores of all records in the unlearned model, layer by layer; what ignores layers is scored at the main one."""
    found: dict[str, SideScores] = {}
    for layer in evidence.layers if contrast.is_by_layer else (evidence.main_layer,):
        found[layer] = dict(contrast.score(evidence.unlearned[layer], [oracle[layer] for oracle in evidence.oracles]))
        for side in evidence.ids:
            scores, n = found[layer].get(side), len(evidence.ids[side])
            # of retain records some may be missing: those that a map was fitted on, or that M4 does not rank among
            if scores is None or scores.shape != (n if side != "retain" else scores.size,):
                shape = None if scores is None else scores.shape
                raise InputError(f"metric {name!r} must score every {side} record, shape ({n},); got {shape}.")
            if not np.isfinite(scores).all():
                raise InputError(f"metric {name!r} must be finite; got NaN or inf for {side} records.")
    return found
