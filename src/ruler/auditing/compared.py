"""Do forget and held-out records differ? Permutation tests of all contrasts together, or the error of training runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from ruler.auditing.contrasts import Contrast, list_deciding
from ruler.auditing.evidence import Evidence, Side
from ruler.auditing.strands import Averager, Strand, can_score
from ruler.core.types import FloatArray
from ruler.stats.p_values import holm
from ruler.stats.scale import Relabelling, RunError, correct_families, relabel

_SIDES: tuple[Side, Side] = ("forget", "held_out")


@dataclass(frozen=True, eq=False)
class Tested:
    """What the tests say: p-values by contrast, corrected ones by contrast, layer and part, and the draws of rulers."""

    raw: Mapping[str, float]
    corrected: Mapping[tuple[str, str, str], float]
    before: Mapping[str, float]  # p-values in the original model
    drawn: Relabelling | None
    columns: Mapping[tuple[str, str, str], int]  # where a strand's scores stand among the draws
    runs: Mapping[tuple[str, str], RunError]


def compare_by_permutation(strands: Sequence[Strand], contrasts: Mapping[str, Contrast], evidence: Evidence) -> Tested:
    """One set of permutations for all contrasts, layers and parts, and for the scales."""
    rows: dict[tuple[str, str, str], FloatArray] = {}
    for one in strands:
        rows |= {(one.contrast, one.layer, part): values for part, values in one.parts.items()}
        rows |= {(one.contrast, one.layer, f"before {part}"): values for part, values in one.parts_before.items()}
        if contrasts[one.contrast].is_ruler:
            rows[one.contrast, one.layer, "now"] = one.now
            for part, values in (("before", one.before), ("plain", one.plain)):
                if values is not None:
                    rows[one.contrast, one.layer, part] = values
    columns = {key: place for place, key in enumerate(rows)}
    drawn = relabel(
        np.array(list(rows.values())),
        strands[0].n_first,
        strata=_code_strata(evidence),
        n_permutations=evidence.settings.n_permutations,
        seed=evidence.draw_seed,
    )

    def correct(chosen: Sequence[str], prefix: str) -> tuple[dict[str, float], dict[tuple[str, str, str], float]]:
        keys = [key for key in rows if key[0] in chosen and key[2].removeprefix(prefix) in ("place", "spread", "tail")]
        keys = [key for key in keys if key[2].startswith(prefix) or not prefix]
        if not keys:
            return {}, {}
        families = list(dict.fromkeys(key[0] for key in keys))
        raw, corrected = correct_families(
            drawn.take([columns[key] for key in keys]),
            [families.index(key[0]) for key in keys],
            [int(key[2].endswith("tail")) for key in keys],
        )
        by_key = {
            (key[0], key[1], key[2].removeprefix(prefix)): float(p) for key, p in zip(keys, corrected, strict=True)
        }
        return dict(zip(families, map(float, raw), strict=True)), by_key

    deciding = list_deciding(contrasts, contrasts)
    alike = [name for name in deciding if not contrasts[name].knows_original]
    raw, corrected = correct(alike, "")
    unlike = {
        (one.contrast, one.layer, "place"): _test_above(one.parts["place"], one.n_first)
        for one in strands
        if one.contrast in deciding and one.contrast not in alike
    }
    if unlike:  # two families of tests: those by permutation, and those of scores that know the original
        corrected = {key: min(1.0, 2.0 * p) for key, p in corrected.items()}
        corrected |= {key: min(1.0, 2.0 * len(unlike) * p) for key, p in unlike.items()}
        for name in {key[0] for key in unlike}:
            own = [p for key, p in unlike.items() if key[0] == name]
            raw[name] = min(1.0, len(own) * min(own))
    before = {name: correct([name], "before ")[0].get(name, math.nan) for name in deciding}
    for name in contrasts.keys() - set(deciding):
        raw |= correct([name], "")[0]
    return Tested(raw, corrected, before, drawn, columns, {})


def _test_above(values: FloatArray, n_first: int) -> float:
    """p-value of Welch's test that the first sample does not lie above the second; 1 for a single record.

    Degrees of freedom are those of the smaller sample: two values that happen to lie close together prove nothing.
    """
    first, second = values[:n_first], values[n_first:]
    if len(first) < 2 or len(second) < 2:
        return 1.0
    parts = [float(one.var(ddof=1)) / len(one) for one in (first, second)]
    distance, variance = float(first.mean() - second.mean()), sum(parts)
    if variance == 0:
        return float(distance <= 0)
    return float(stdtr(min(len(first), len(second)) - 1, -distance / math.sqrt(variance)))


def compare_by_runs(strands: Sequence[Strand], contrasts: Mapping[str, Contrast], evidence: Evidence) -> Tested:
    """Forget and held-out records are unlike: the places of rulers by t tests whose error has that of training runs."""
    freedom = evidence.run_freedom
    assert freedom is not None
    p_values: dict[tuple[str, str, str], float] = {}
    runs = {}
    for one in strands:
        contrast = contrasts[one.contrast]
        if not (contrast.is_ruler and contrast.is_adjusted):
            continue
        run = RunError(_measure_runs(contrast, one.layer, evidence), freedom)
        n, m = one.n_first, len(one.now) - one.n_first
        own = float(one.now[n:].var(ddof=1)) * (1 / n + 1 / m)
        whole = own + run.variance
        if not 0 < whole < math.inf:  # scores that are all alike, or oracles that cannot be scored
            continue
        degrees = whole**2 / (own**2 / (m - 1) + run.variance**2 / run.freedom)
        runs[one.contrast, one.layer] = run
        distance = abs(float(one.now[:n].mean() - one.now[n:].mean()))
        p_values[one.contrast, one.layer, "place"] = 2 * float(stdtr(degrees, -distance / math.sqrt(whole)))
    keys = [key for key in p_values if contrasts[key[0]].decides]
    corrected = dict(zip(keys, map(float, holm([p_values[key] for key in keys])), strict=True)) if keys else {}
    raw: dict[str, float] = {}
    for name in {key[0] for key in p_values}:
        own_p = [p for key, p in p_values.items() if key[0] == name]
        raw[name] = min(1.0, len(own_p) * min(own_p))
    return Tested(raw, corrected, {}, None, {}, runs)


def _measure_runs(contrast: Contrast, layer: str, evidence: Evidence) -> float:
    """Variance of the difference between forget and held-out records from one training run to the next."""
    average = Averager(evidence)
    n = evidence.count_units("forget")
    known = [one[layer] for one in evidence.oracles if can_score(contrast, one[layer])]
    if len(known) < 2:
        return math.inf
    units = [average(contrast.score(one, [])) for one in known]
    differences = [float(one[:n].mean() - one[n:].mean()) for one in units]
    return float(np.var(differences, ddof=1)) * (1 + 1 / len(known))


def _code_strata(evidence: Evidence) -> npt.NDArray[np.intp] | None:
    """Stratum of each forget and held-out record (or group), as a code; None where nothing was matched."""
    if not evidence.strata:
        return None
    parts = []
    for side in _SIDES:
        labels = evidence.strata[side]
        if side in evidence.groups:
            labels = labels[np.unique(evidence.groups[side], return_index=True)[1]]
        parts.append(labels)
    return np.unique(np.concatenate(parts), return_inverse=True)[1]
