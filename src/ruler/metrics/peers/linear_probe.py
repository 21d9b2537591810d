"""Linear probe: can a linear classifier tell forget from held-out records by their states?"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.checks import as_matrix
from ruler.core.errors import InputError
from ruler.core.optional import load_optional
from ruler.core.types import FloatArray, IndexArray, RowsLike
from ruler.metrics.peers.cka import States
from ruler.metrics.peers.peer import Peer, PeerValue
from ruler.stats.auc import measure_effect

N_FOLDS = 5
_MOST_STEPS = 50
_MOST_HALVINGS = 20
_ENOUGH = 1e-6


def linear_probe(
    forget_states: States,
    held_out_states: States,
    forget_groups: npt.ArrayLike | None = None,
    held_out_groups: npt.ArrayLike | None = None,
    device: str | None = None,
    *,
    penalty: float = 1.0,
    seed: int = 0,
) -> PeerValue:
    """Can a linear classifier tell forget from held-out records by a layer's states? 0.5 is chance.

    Per layer, a logistic regression with squared penalty and balanced classes on standardised states, cross-validated
    in five folds of whole groups; the mean over folds of the AUC on the records left out. The aggregate is the mean
    over layers: the best layer would be above 0.5 by choice alone.

    Args:
        forget_states: By layer, (n, p).
        held_out_states: By layer, (m, p).
        forget_groups: (n,) whose records they are; each record for itself if not given.
        held_out_groups: (m,) likewise.
        device: Where torch fits the probes, such as "cuda"; NumPy does without.
        penalty: Weight of half the squared norm of the coefficients beside the sum of losses.
        seed: Of the draw of folds.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> forget, held_out = {"0": rng.normal(2, 1, (30, 3))}, {"0": rng.normal(0, 1, (40, 3))}
        >>> linear_probe(forget, held_out).value > 0.95
        True
    """
    groups = (forget_groups, held_out_groups)
    found = cross_validate(forget_states, held_out_states, *groups, device, penalty=penalty, seed=seed)
    if found is None:
        return PeerValue(math.nan, reason="A probe needs at least two groups of forget and of held-out records.")
    layers = dict(zip(forget_states, found.aucs.tolist(), strict=True))
    return PeerValue(float(found.aucs.mean()), None, layers)


@dataclass(frozen=True, eq=False)
class Probed:
    """How well probes tell two sets of records apart, by layer, on records they were not fitted to.

    Args:
        aucs: (layers,) mean over folds.
        entropies: (layers,) cross-entropy in nats, both sets counting the same, mean over folds.
    """

    aucs: FloatArray
    entropies: FloatArray


def cross_validate(
    first: States,
    second: States,
    first_groups: npt.ArrayLike | None = None,
    second_groups: npt.ArrayLike | None = None,
    device: str | None = None,
    *,
    penalty: float = 1.0,
    seed: int = 0,
) -> Probed | None:
    """Fit and try probes, as `linear_probe` describes; None if a set has only one group."""
    if list(first) != list(second) or not first:
        raise InputError("states must be of the same layers on both sides, at least one; got others.")
    grams = np.stack([_make_gram(first[name], second[name]) for name in first])  # (layers, n, n)
    sizes = [len(np.asarray(next(iter(states.values())))) for states in (first, second)]
    folds = [_draw_folds(*one, seed) for one in zip((first_groups, second_groups), sizes, strict=True)]
    n_folds = min(int(one.max()) + 1 for one in folds)
    if n_folds < 2:
        return None
    fold, is_first = np.concatenate([one % n_folds for one in folds]), np.repeat([True, False], sizes)
    aucs, entropies = np.zeros((n_folds, len(grams))), np.zeros((n_folds, len(grams)))
    held: Any = grams
    if device is not None:
        held = load_optional("torch", "fitting probes on a device").as_tensor(grams, device=device)
    for number in range(n_folds):
        train, left = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        duals = fit_logistic(held[:, train[:, None], train], is_first[train], penalty)
        duals = duals if device is None else duals.cpu().numpy()
        scores = np.einsum("lij,lj->li", grams[:, left[:, None], train], duals)
        own, other = scores[:, is_first[left]], scores[:, ~is_first[left]]
        aucs[number] = [measure_effect(*pair).value for pair in zip(own, other, strict=True)]
        entropies[number] = (np.logaddexp(0, -own).mean(axis=1) + np.logaddexp(0, other).mean(axis=1)) / 2
    return Probed(aucs.mean(axis=0), entropies.mean(axis=0))


def fit_logistic(grams: Any, is_first: npt.NDArray[np.bool_], penalty: float) -> Any:
    """Duals (layers, n) of penalised logistic regressions with balanced classes, from Gram matrices (layers, n, n).

    The decision for a record is its inner products with the training records, times the duals. Newton's method, with
    steps halved where the objective would not fall. NumPy arrays, or tensors on any device.
    """
    xp: Any = np if isinstance(grams, np.ndarray) else load_optional("torch", "fitting probes on a device")
    n, n_first = len(is_first), int(is_first.sum())
    balance = np.where(is_first, n / (2 * n_first), n / (2 * (n - n_first)))
    target, weight, ridge = (
        values if xp is np else xp.as_tensor(values, device=grams.device)
        for values in (is_first.astype(np.float64), balance, penalty * np.eye(n))
    )
    duals = xp.zeros_like(grams[:, 0])

    def decide(values: Any) -> Any:
        return xp.einsum("lij,lj->li", grams, values)

    def cost(values: Any) -> Any:
        scores = decide(values)
        loss = weight * xp.logaddexp(xp.zeros_like(scores), (1 - 2 * target) * scores)
        return (loss + penalty / 2 * values * scores).sum(1)

    for _ in range(_MOST_STEPS):
        scores = decide(duals)
        chance = 0.5 * (1 + xp.tanh(scores / 2))
        root = xp.sqrt(xp.clip(weight * chance * (1 - chance), 1e-12, None))
        wanted = root * scores - weight * (chance - target) / root
        system = root[:, :, None] * grams * root[:, None, :] + ridge
        step = root * xp.linalg.solve(system, wanted[..., None])[..., 0] - duals
        before, size = cost(duals), xp.ones_like(grams[:, 0, :1])
        for _ in range(_MOST_HALVINGS):
            is_worse = cost(duals + size * step) > before
            if not is_worse.any():
                break
            size[is_worse] /= 2
        duals = duals + size * step
        if float(abs(decide(size * step)).max()) < _ENOUGH:
            break
    return duals


def _make_gram(first: RowsLike, second: RowsLike) -> FloatArray:
    """(n, n) inner products of standardised rows of both sets, with a constant behind them for the intercept."""
    rows = np.concatenate([np.asarray(as_matrix(one, "states"), dtype=np.float64) for one in (first, second)])
    spread = rows.std(axis=0)
    standard = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return np.asarray(standard @ standard.T + 1.0)


def _draw_folds(groups: Any, n: int, seed: int) -> IndexArray:
    """Fold of each record, 0 to at most 4; a group has one fold, and folds have as many groups as can be."""
    names, member = np.unique(np.arange(n) if groups is None else np.asarray(groups), return_inverse=True)
    if member.shape != (n,):
        raise InputError(f"groups must be one per record, {n}; got shape {member.shape}.")
    place = np.random.default_rng(seed).permutation(len(names)) % min(N_FOLDS, len(names))
    return np.asarray(place[member], dtype=np.int64)


LINEAR_PROBE = Peer(
    title="Linear probe",
    question="How well does a linear classifier tell forget from held-out records by the layers' states?",
    compute=linear_probe,
    range=(0, 1),
    null=0.5,
    source="Alain and Bengio, 2017",
)
