"""Copies of records on another side."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.cases import QUICK
from tests.auditing.guards.cases import N_FORGET, N_HELD_OUT, N_RETAIN, WIDTH, cut, guards_of, make_models, names_of

from ruler.auditing import audit


@pytest.mark.parametrize(("n_copied", "severity"), [(1, "warn"), (10, "warn"), (35, "fail")])
def test_forget_records_in_the_retain_set(models, n_copied, severity):
    for forget, retain, _ in models.values():
        retain[:n_copied] = forget[:n_copied]
    finding, *_ = guards_of(models, ids=np.arange(500, 500 + N_FORGET))
    assert (finding.name, finding.severity) == ("duplicates", severity)
    assert f"{n_copied} of 40 forget records are identical" in finding.message
    assert "the first is 500" in finding.message


def test_nearly_identical_forget_records_warn(models, random):
    for forget, retain, _ in models.values():
        retain[:5] = forget[:5] * (1 + 1e-5 * random.normal(size=(5, WIDTH)))
    assert names_of(models) == [("near_duplicates", "warn")]


def test_rows_that_fell_together_in_one_model_are_no_duplicates(models):
    forget, retain, _ = models["unlearned"]
    retain[:5] = forget[:5]
    assert names_of(models) == []


def test_copies_beyond_those_of_a_discrete_table_warn(random):
    inputs = random.integers(0, 4, size=(N_FORGET + N_RETAIN + N_HELD_OUT, 6)).astype(float)
    models = {name: cut(rows) for name, rows in make_models(random, inputs).items()}
    assert names_of(dict(models)) == []
    for forget, retain, _ in models.values():
        retain[:20] = forget[:20]
    (finding,) = [finding for finding in guards_of(models) if finding.name == "duplicates"]
    assert "among retain records" in finding.message


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("n_copied", "severity"), [(2, "warn"), (30, "fail")])
def test_held_out_records_that_were_trained_on(models, side, n_copied, severity):
    for sides in models.values():
        sides[2][:n_copied] = sides[side][:n_copied]
    (finding,) = [finding for finding in guards_of(models) if finding.name == "held_out_overlap"]
    assert finding.severity == severity
    assert (
        f"{n_copied} of 80 held-out records are identical to a {('forget', 'retain')[side]} record" in finding.message
    )


def test_identical_rows_are_confirmed_in_the_sample_itself(make_world):
    model, _ = make_world()
    retain = np.concatenate([model[1], model[1]])
    twins = (np.concatenate([model[0], retain[:20]]), retain, model[2])
    report = audit(twins, settings=replace(QUICK, n_reference=150))
    assert not [guard for guard in report.guards if guard.name == "duplicates"]  # half of them is no more than usual
