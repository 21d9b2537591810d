"""What the best contrast proves to a privacy engineer: epsilon, true positives at 1% false ones, ROC curves."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.special import betaincinv

from ruler.auditing.evidence import Evidence
from ruler.auditing.findings import Privacy
from ruler.auditing.measure import Measurement, list_judging
from ruler.auditing.strands import Strand
from ruler.core.types import FloatArray

_CONFIDENCE = 0.95
_FALSE_POSITIVES = 0.01
_N_POINTS = 200


def measure_privacy(evidence: Evidence, found: Mapping[str, Measurement]) -> Privacy | None:
    """The lower bound of epsilon that the error rates of the best threshold attack prove.

    Epsilon is at least log(TPR / FPR) and log(TNR / FNR) of any attack. Contrast, side and threshold are chosen on
    every other record (the order follows from their content) and judged on the rest; the error is shared by the
    Clopper-Pearson bounds of all four rates.

    Returns:
        None without held-out records or with fewer than four on a side.
    """
    strands = [(one.finding.name, strand) for one in list_judging(found) for strand in one.strands]
    if not strands or min(strands[0][1].n_first, len(strands[0][1].now) - strands[0][1].n_first) < 4:
        return None
    best, attack = -math.inf, (strands[0], 1, 0.0)
    for one in strands:
        for sign in (1, -1):
            forget, held_out = _split(one[1], sign, 0)
            thresholds = np.unique(forget)
            bounds = _bound_epsilon(forget, held_out, thresholds)
            if bounds.max() > best:
                best, attack = float(bounds.max()), (one, sign, float(thresholds[bounds.argmax()]))
    (name, strand), sign, threshold = attack
    epsilon = max(0.0, float(_bound_epsilon(*_split(strand, sign, 1), np.array([threshold]))[0]))
    strongest = max((strand for _, strand in strands), key=lambda strand: abs(strand.effect - 0.5))
    rate, interval = _true_positives(strongest)
    return Privacy(name, epsilon, _CONFIDENCE, rate, interval)


def trace_roc(found: Mapping[str, Measurement]) -> dict[str, tuple[FloatArray, FloatArray]]:
    """False and true positive rates of every deciding contrast, on the side that it takes."""
    curves = {}
    for one in list_judging(found) if any(one.strands for one in found.values()) else ():
        strand = one.told
        sign = 1 if strand.effect >= 0.5 else -1
        forget, held_out = sign * strand.now[: strand.n_first], sign * strand.now[strand.n_first :]
        thresholds = np.concatenate([[np.inf], np.unique(np.concatenate([forget, held_out]))[::-1]])
        if len(thresholds) > _N_POINTS:
            thresholds = thresholds[np.linspace(0, len(thresholds) - 1, _N_POINTS).astype(np.int64)]
        rates = [(one_side[None, :] >= thresholds[:, None]).mean(axis=1) for one_side in (held_out, forget)]
        curves[one.finding.name] = (rates[0], rates[1])
    return curves


def _split(strand: Strand, sign: int, half: int) -> tuple[FloatArray, FloatArray]:
    """Every other forget and held-out score."""
    return sign * strand.now[: strand.n_first][half::2], sign * strand.now[strand.n_first :][half::2]


def _bound_epsilon(forget: FloatArray, held_out: FloatArray, thresholds: FloatArray) -> FloatArray:
    """The larger bound of log(TPR / FPR) and log(TNR / FNR) if records at least as high as a threshold are called."""
    level = (1 - _CONFIDENCE) / 4  # two rates, two ratios
    n, m = len(forget), len(held_out)
    hits, alarms = (
        len(one) - np.searchsorted(np.sort(one), thresholds, side="left").astype(np.float64)
        for one in (forget, held_out)
    )
    with np.errstate(divide="ignore"):
        positive = np.log(_lower(hits, n, level) / _upper(alarms, m, level))
        negative = np.log(_lower(m - alarms, m, level) / _upper(n - hits, n, level))
    found: FloatArray = np.maximum(positive, negative)
    return found


def _true_positives(strand: Strand) -> tuple[float, tuple[float, float]]:
    sign = 1 if strand.effect >= 0.5 else -1
    forget, held_out = sign * strand.now[: strand.n_first], np.sort(sign * strand.now[strand.n_first :])
    n_allowed = int(_FALSE_POSITIVES * len(held_out))
    if n_allowed < 1:
        return math.nan, (math.nan, math.nan)
    n = len(forget)
    hits = np.array((forget > held_out[-n_allowed - 1]).sum(), dtype=np.float64)
    level = (1 - _CONFIDENCE) / 2
    return float(hits / n), (float(_lower(hits, n, level)), float(_upper(hits, n, level)))


def _lower(count: FloatArray, n: int, level: float) -> FloatArray:
    """Clopper and Pearson's lower bound of a share."""
    bound: FloatArray = np.where(count == 0, 0.0, betaincinv(np.maximum(count, 1), n - count + 1, level))
    return bound


def _upper(count: FloatArray, n: int, level: float) -> FloatArray:
    """Clopper and Pearson's upper bound of a share."""
    bound: FloatArray = np.where(count == n, 1.0, betaincinv(count + 1, np.maximum(n - count, 1), 1 - level))
    return bound
