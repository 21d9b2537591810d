"""What every metric must do, ours and yours.

Write in your own tests::

    from ruler.testing.metrics import check_metric

    def test_contract():
        check_metric("my_metric", MY_METRIC)

It asserts that the metric gives one finite number per record, whatever the order of the rows; that its words and fields
are there; that an audit reports it, with a reason where a number cannot be computed; and, where you state them, that
rotating all models together, or scaling every row, changes nothing.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ruler.auditing import AuditSettings, Evidence, audit_evidence, gather_evidence
from ruler.auditing.contrasts import OWN, Contrast, SideScores, list_deciding
from ruler.auditing.evidence import LayerRows, Side
from ruler.core.types import Embeddings, FloatArray, IndexArray

_SIZES: dict[Side, int] = {"forget": 40, "retain": 90, "held_out": 60}
_WIDTH = 5
_SETTINGS = AuditSettings(n_permutations=99)
Change = Callable[[FloatArray], FloatArray]


def check_metric(
    name: str, contrast: Contrast, *, ignores_rotation: bool = False, ignores_row_scale: bool = False
) -> None:
    """Assert that a metric keeps the contract.

    Args:
        name: Its key in the table and in reports.
        contrast: The metric.
        ignores_rotation: It states that one rotation of all models leaves every score as it is.
        ignores_row_scale: It states that the length of a row does not matter.

    Raises:
        AssertionError: It does not.

    Example:
        >>> from ruler.auditing.contrasts import OWN
        >>> check_metric("m4", OWN["m4"], ignores_rotation=True, ignores_row_scale=True)
    """
    for word in (contrast.title, contrast.low, contrast.high, contrast.why_descriptive):
        assert word.strip(), f"{name} must have a title, words for both sides and a reason"
    evidence = _gather()
    scores = contrast.score(evidence.main, evidence.main_oracles)
    for side, n in _SIZES.items():
        if contrast.is_ruler and side == "retain":  # known members, and none where a fit has seen them
            n = len(evidence.main.members)
            known = scores.get(side, np.zeros(n))
            assert known.shape == (n,), f"{name} must give one number per known member; got {known.shape}"
            assert not np.isinf(known).any(), f"{name} must be finite or NaN; got inf for known members"
            continue
        assert side in scores, f"{name} must score {side} records"
        assert scores[side].shape == (n,), f"{name} must give one number per {side} record; got {scores[side].shape}"
        assert np.isfinite(scores[side]).all(), f"{name} must be finite; got NaN or inf for {side} records"
    order = np.random.default_rng(3).permutation(_SIZES["forget"])
    permuted = contrast.score(_permute(evidence.main, order), [_permute(one, order) for one in evidence.main_oracles])
    is_same = np.allclose(permuted["forget"], scores["forget"][order], atol=1e-12)
    assert is_same, f"{name} must not depend on the order of the rows"
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(_WIDTH, _WIDTH)))[0]
    if ignores_rotation:
        _check_unchanged(name, contrast, scores, lambda rows: rows @ turn, "a rotation")
    if ignores_row_scale:
        rng = np.random.default_rng(2)
        _check_unchanged(name, contrast, scores, lambda rows: rows * rng.uniform(0.1, 10, (len(rows), 1)), "the length")
    _check_report(name, contrast)


def _gather(change: Change = lambda rows: rows, *, has_held_out: bool = True) -> Evidence:
    """Evidence of three models of the same records, perhaps changed."""
    rng = np.random.default_rng(0)
    base = {side: rng.normal(size=(n, _WIDTH)) for side, n in _SIZES.items()}
    labels = {side: rng.integers(0, 3, size=n) for side, n in _SIZES.items()}
    models: dict[str, Any] = {}
    relearned: dict[str, dict[Side, FloatArray]] = {}
    for model, mark in (("unlearned", 0.2), ("oracle", 0.0), ("original", 1.0)):
        parts = []
        for side, rows in base.items():
            own = rows + 0.1 * rng.normal(size=rows.shape) + mark * (side == "forget")
            parts.append(Embeddings(change(own), losses=np.abs(own).mean(axis=1), labels=labels[side]))
        models[model] = tuple(parts if has_held_out else parts[:2])
        relearned[model] = {side: part.losses / 2 for side, part in zip(_SIZES, models[model], strict=False)}
    return gather_evidence(**models, settings=_SETTINGS, relearned=relearned)


def _permute(model: LayerRows, order: IndexArray) -> LayerRows:
    """The same model with its forget records in another order."""

    def move(by_side: Mapping[Side, Any] | None) -> dict[Side, Any]:
        assert by_side is not None
        return {**by_side, "forget": by_side["forget"][order]}

    return replace(
        model,
        rows=move(model.rows),
        norms=move(model.norms),
        losses=move(model.losses),
        classes=move(model.classes),
        relearned=move(model.relearned),
        original=None if model.original is None else _permute(model.original, order),
    )


def _check_unchanged(name: str, contrast: Contrast, scores: SideScores, change: Change, what: str) -> None:
    before, after = _gather(), _gather(change)
    other = contrast.score(after.main, after.main_oracles)
    for side, own in scores.items():  # evidence is ordered by content, which the change has moved
        if contrast.is_ruler and side == "retain":
            continue
        same = own[np.argsort(before.ids[side])], other[side][np.argsort(after.ids[side])]
        assert np.allclose(*same, atol=1e-9), f"{name} states that {what} of {side} records changes nothing"


def _check_report(name: str, contrast: Contrast) -> None:
    """An audit with and without held-out records shows the metric; what it cannot know is NaN, and it says why."""
    table = {**OWN, name: contrast}
    report = audit_evidence(_gather(), contrasts=table)
    found = report.metrics[name]
    assert math.isfinite(found.value), f"{name} must have a value"
    assert 0 <= found.effect <= 1, f"{name} must have an AUC"
    assert 0 < found.p_value <= 1, f"{name} must have a p-value"
    decides = name in list_deciding(report.metrics, table)
    assert (found.verdict == "descriptive") is not decides, f"{name} must have the verdict of its kind"
    alone = audit_evidence(_gather(has_held_out=False), contrasts=table).metrics[name]
    assert math.isnan(alone.null), f"{name} has no null without held-out records"
    assert math.isnan(alone.effect), f"{name} has no AUC without held-out records"
    assert alone.reason, f"{name} must say why a number is missing"
    describing = audit_evidence(_gather(), contrasts={**OWN, name: replace(contrast, decides=False)})
    assert describing.metrics[name].value == found.value, f"{name} must have one value, whether it decides or not"
