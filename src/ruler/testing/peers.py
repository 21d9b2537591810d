"""What every peer's metric must do, ours and yours.

Write in your own tests::

    from ruler.testing.peers import check_peer

    def test_contract():
        check_peer("my_metric", MY_METRIC)

It asserts that words and fields are there; that the number lies in the stated range and is the same every time; that
there is one number per forget record, or none at all; that the order of the records, on any side, and of several models
changes nothing; that what is given is left as it was; and that what is missing is named.
"""

import copy
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.types import PatchReading, Predictions, TokenReading
from ruler.metrics.peers import NEEDS, PREFIXES, Peer, PeerValue

N_FORGET, N_FALSE = 24, 3
_SIZES = {"forget": N_FORGET, "paraphrased": N_FORGET, "perturbed": N_FORGET * N_FALSE, "held_out": 30, "retain": 40}
_LAYERS, _WIDTH, _LONGEST, _N_CLASSES = ("low", "high"), 4, 9, 3


def check_peer(name: str, peer: Peer, extra: Mapping[str, Any] | None = None) -> None:
    """Assert that a metric keeps the contract.

    Args:
        name: Its key in the table.
        peer: The metric.
        extra: What it needs beyond `NEEDS`, with numbers to try it on.

    Raises:
        AssertionError: It does not.

    Example:
        >>> from ruler.metrics.peers import PEERS
        >>> check_peer("min_k", PEERS["min_k"])
    """
    assert re.fullmatch("[a-z][a-z0-9_]*", name), f"{name} must be lower-case letters, digits and underscores"
    assert peer.title.strip(), f"{name} must have a title"
    assert peer.question.strip().endswith("?"), f"{name} must say what it answers, as a question"
    low, high = peer.range
    assert low < high, f"{name} must have a range"
    assert math.isnan(peer.null) or low <= peer.null <= high, f"{name} must have its null in its range"
    assert not math.isnan(peer.null) or peer.why_no_null.strip(), f"{name} must say why it has no null"
    given = {need: _make(need, 0) for need in (*peer.needs, *peer.takes) if need not in (extra or {})} | dict(
        extra or {}
    )
    before = copy.deepcopy(given)
    found = peer.measure(given)
    assert not math.isnan(found.value), f"{name} must have a number for what it needs; got NaN: {found.reason}"
    assert low <= found.value <= high, f"{name} must lie from {low} to {high}; got {found.value}"
    shape = None if found.records is None else found.records.shape
    assert shape in (None, (N_FORGET,)), f"{name} must give one number per forget record or none; got {shape}"
    assert _same(before, given), f"{name} must leave what it is given as it was"
    _check_same(name, found, peer.measure(given), np.arange(N_FORGET), "called again")
    order = np.random.default_rng(1).permutation(N_FORGET)
    moved = {need: _permute(need, value, {"forget": order}) for need, value in given.items()}
    _check_same(name, found, peer.measure(moved), order, "with forget records in another order")
    orders = {side: np.random.default_rng(2).permutation(_SIZES[side]) for side in ("retain", "held_out")}
    moved = {need: _permute(need, value, orders) for need, value in given.items()}
    _check_same(name, found, peer.measure(moved), np.arange(N_FORGET), "with other records in another order")
    moved = {need: value[::-1] if _is_of_several(need) else value for need, value in given.items()}
    _check_same(name, found, peer.measure(moved), np.arange(N_FORGET), "with several models in another order")
    for need in peer.needs:
        lacking = peer.measure({key: value for key, value in given.items() if key != need})
        assert math.isnan(lacking.value), f"{name} must be NaN without {need}"
        assert need in lacking.reason, f"{name} must say that it lacks {need}"


def _check_same(name: str, found: PeerValue, again: PeerValue, order: npt.NDArray[Any], when: str) -> None:
    assert math.isclose(found.value, again.value, rel_tol=1e-6, abs_tol=1e-9), f"{name} must be the same {when}"
    if found.records is not None:
        assert again.records is not None, f"{name} must have records {when}"
        is_same = np.allclose(found.records[order], again.records, rtol=1e-6, atol=1e-9, equal_nan=True)
        assert is_same, f"{name} must give each record the same number {when}"


def _make(need: str, seed: int) -> Any:
    """Numbers of the kind that a need asks for."""
    prefix = next((prefix for prefix in PREFIXES if need.removeprefix(prefix) in NEEDS and need not in NEEDS), "")
    what = need.removeprefix(prefix)
    assert what in NEEDS, f"{need} must be in NEEDS or given as extra"
    if prefix.endswith("s_"):
        return [_make(what, seed + number) for number in range(1, 13)]
    rng = np.random.default_rng([seed, *map(ord, prefix)])
    side = next((side for side in _SIZES if what.startswith(f"{side}_")), "forget")
    n, shift = _SIZES[side], 1.0 if (side, prefix) in (("forget", ""), ("forget", "original_")) else 0.0
    if what.endswith("_tokens"):
        return _make_tokens(rng, n)
    if what.endswith("_states"):
        return {layer: rng.normal(shift, 1, (n, _WIDTH)) for layer in _LAYERS}
    if what.endswith("_predictions"):
        return Predictions(rng.normal(size=(n, _N_CLASSES)), np.arange(n) % _N_CLASSES)
    if what.endswith("_groups"):
        return np.arange(n) // 3
    if what.endswith("_labels"):
        return np.arange(n) % _N_CLASSES
    if what == "forget_patches":
        return PatchReading(np.full(n, -1.0), {layer: -1 - rng.exponential(size=n) for layer in _LAYERS})
    return {
        "forget_answers": [f"answer {row} of {row % 3}" for row in range(n)],
        "forget_generations": [f"answer {row % 5} of {row % 3}" for row in range(n)],
        "device": None,
        "weights": {layer: rng.normal(size=(3, 2)) for layer in _LAYERS},
        "relearn_accuracies": np.array([0.0, 0.1, 0.6, 1.0]),
        "utility": {part: {"probability": 0.5, "rouge": 0.6, "truth_ratio": 0.7} for part in _PARTS},
    }[what]


_PARTS = ("retain", "real_authors", "world_facts")


def _make_tokens(rng: np.random.Generator, n: int) -> TokenReading:
    lengths = rng.integers(1, _LONGEST + 1, n)
    log_probs = np.where(np.arange(_LONGEST) < lengths[:, None], -rng.exponential(size=(n, _LONGEST)), np.nan)
    means, deviations = log_probs - 0.1, np.where(np.isnan(log_probs), np.nan, 0.5)
    lens = {layer: 2 * log_probs - rng.random() for layer in _LAYERS}
    return TokenReading(log_probs, log_probs > -0.5, means, deviations, lens)


def _permute(need: str, value: Any, orders: Mapping[str, npt.NDArray[Any]]) -> Any:
    """The same with the records of some sides in another order; what is not about their single records as it is."""
    what = need
    for prefix in PREFIXES:
        what = what if what in NEEDS else what.removeprefix(prefix)
    side = next((side for side in _SIZES if what.startswith(f"{side}_")), "")
    order = orders.get("forget" if side in ("paraphrased", "perturbed") else side)
    if order is None:
        return value
    if side == "perturbed":
        order = (order[:, None] * N_FALSE + np.arange(N_FALSE)).ravel()
    return _take(value, order)


def _is_of_several(need: str) -> bool:
    return need not in NEEDS and any(need.startswith(prefix) for prefix in PREFIXES if prefix.endswith("s_"))


def _take(value: Any, order: npt.NDArray[Any]) -> Any:
    if isinstance(value, np.ndarray):
        return value[order]
    if isinstance(value, Mapping):
        return {name: _take(part, order) for name, part in value.items()}
    if isinstance(value, Predictions | TokenReading | PatchReading):
        return type(value)(**{name: _take(part, order) for name, part in vars(value).items()})
    if isinstance(value, list):
        return [value[row] for row in order] if isinstance(value[0], str) else [_take(one, order) for one in value]
    return value


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return _same(vars(a), vars(b)) if hasattr(a, "__dataclass_fields__") else bool(a == b)
