"""Too few records for the level."""

import numpy as np
import pytest
from tests.auditing.guards.cases import N_FORGET, guards_of

from ruler.auditing.settings import AuditSettings


def test_groups_are_counted_instead_of_their_records(models):
    groups = {"forget": np.zeros(N_FORGET), "held_out": np.arange(80) // 10}
    (finding,) = [one for one in guards_of(models, groups=groups) if one.name == "unattainable_level"]
    assert (finding.severity, finding.blocks) == ("warn", True)
    assert "1 forget groups against 8 held-out ones give p-values of 0.222 at best" in finding.message
    assert finding.cure == "Give at least 39 held-out groups."


@pytest.mark.parametrize(("n_forget", "n_held_out", "n_needed"), [(1, 20, 39), (2, 5, 8), (3, 3, 5)])
def test_too_few_units_for_the_level_block_the_verdict(models, n_forget, n_held_out, n_needed):
    few = {name: (sides[0][:n_forget], sides[1], sides[2][:n_held_out]) for name, sides in models.items()}
    (finding,) = [finding for finding in guards_of(few) if finding.name == "unattainable_level"]
    assert finding.blocks
    assert f"Give at least {n_needed} held-out records." == finding.cure
    enough = {name: (sides[0][:n_forget], sides[1], sides[2][:n_needed]) for name, sides in models.items()}
    assert "unattainable_level" not in [finding.name for finding in guards_of(enough)]


def test_a_level_beyond_reach_asks_for_more_to_forget(models):
    few = {name: (sides[0][:1], *sides[1:]) for name, sides in models.items()}
    found = guards_of(few, settings=AuditSettings(alpha=1e-6))
    assert "Give more forget records." in [finding.cure for finding in found]
