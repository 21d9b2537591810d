"""Every metric of the table keeps the contract, and the contract finds those that do not."""

from dataclasses import replace

import numpy as np
import pytest

from ruler.auditing.contrasts import OWN, Contrast
from ruler.testing.metrics import check_metric

IGNORED = {  # what each of ours states: rotation, row scale
    "m1": (True, True),
    "m2": (True, True),
    "m3": (True, True),
    "m4": (True, True),
    "norm": (True, False),
    "loss": (False, False),
    "readout": (False, False),  # turned rows lead to another point of the same tolerance
    "tangent": (True, True),
    "relearned": (False, False),
}


@pytest.mark.parametrize("name", OWN)
def test_ours_keep_the_contract(name):
    ignores_rotation, ignores_row_scale = IGNORED[name]
    check_metric(name, OWN[name], ignores_rotation=ignores_rotation, ignores_row_scale=ignores_row_scale)


def test_a_users_metric_keeps_it():
    def score(model, oracles):
        return {side: np.abs(rows).max(axis=1) for side, rows in model.rows.items()}

    check_metric("peak", Contrast("Peakedness", score))
    check_metric("peak", Contrast("Peakedness", score, decides=True))


def test_a_users_ruler_scores_known_members_or_none():
    def score(model, oracles):
        found = {side: np.abs(rows).max(axis=1) for side, rows in model.rows.items()}
        return found | {"retain": found["retain"][model.members]}

    check_metric("peak", Contrast("Peakedness", score, decides=True, is_ruler=True, residual_side=1))
    bare = Contrast(
        "Peakedness", lambda model, oracles: {k: v for k, v in score(model, oracles).items() if k != "retain"}
    )
    check_metric("peak", replace(bare, is_ruler=True))
    with pytest.raises(AssertionError, match="peak must score retain records"):
        check_metric("peak", bare)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda rows: rows[:-1, 0], "must give one number per forget record"),
        (lambda rows: rows[:0, 0] if len(rows) == 90 else rows[:, 0] ** 2, "must give one number per retain record"),
        (lambda rows: rows[:, 0] * np.nan, "must be finite"),
        (lambda rows: np.arange(len(rows)) * 1.0, "must not depend on the order of the rows"),
        (lambda rows: rows[:, 0], "states that a rotation of forget records changes nothing"),
        (lambda rows: np.linalg.norm(rows, axis=1), "states that the length of forget records changes nothing"),
    ],
)
def test_those_that_break_it_are_found(score, message):
    contrast = Contrast("Mine", lambda model, oracles: {side: score(rows) for side, rows in model.rows.items()})
    with pytest.raises(AssertionError, match=message):
        check_metric("mine", contrast, ignores_rotation=True, ignores_row_scale=True)
