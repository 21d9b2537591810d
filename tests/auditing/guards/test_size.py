"""Too few records for the margin, or for the level."""

import re

import numpy as np
import pytest
from tests.auditing.guards.cases import (
    N_FORGET,
    guards_of,
    names_of,
)

from ruler.auditing.settings import AuditSettings


@pytest.mark.parametrize(("n_forget", "severity"), [(2, "warn"), (10, "warn"), (20, "note")])
def test_a_forget_set_that_is_too_small_is_named(models, n_forget, severity):
    small = {name: (sides[0][:n_forget], *sides[1:]) for name, sides in models.items()}
    (finding,) = guards_of(small)
    assert (finding.name, finding.severity) == ("too_few_records", severity)
    assert f"{n_forget} forget records against 80 held-out ones are too few to show erasure" in finding.message
    assert "at least 32 forget records against as many control records as now" in finding.cure


@pytest.mark.parametrize("margin", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("n_held_out", [10, 40, 80])
def test_the_advised_number_is_enough(models, margin, n_held_out):
    models = {name: (sides[0][:3], sides[1], sides[2][:n_held_out]) for name, sides in models.items()}
    settings = AuditSettings(margin=margin)
    (finding,) = guards_of(models, settings=settings)
    n_needed = int(re.search(r"at least (\d+)", finding.cure)[1])
    n_control = n_held_out if finding.cure.count("as now") else n_needed
    spread = np.sqrt((n_needed + n_control + 1) / (12 * n_needed * n_control))
    assert 1.645 * spread == pytest.approx(margin, rel=0.1)
    assert 1.6448 * spread <= margin


def test_a_margin_decides_what_is_too_small(models):
    assert names_of(dict(models), settings=AuditSettings(margin=0.03)) == [("too_few_records", "note")]
    assert names_of(models, settings=AuditSettings(margin=0.2)) == []


def test_few_groups_are_few_however_many_records(models):
    (finding,) = guards_of(models, groups=np.arange(N_FORGET) // 20)
    assert (finding.name, finding.severity) == ("too_few_records", "warn")
    assert "2 forget groups against 80 held-out ones" in finding.message
    assert "forget groups against as many control groups as now" in finding.cure


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
