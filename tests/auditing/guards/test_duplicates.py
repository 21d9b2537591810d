"""Copies of records on another side."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.cases import QUICK
from tests.auditing.guards.cases import N_FORGET, N_HELD_OUT, N_RETAIN, WIDTH, cut, guards_of, make_models, names_of

from ruler.auditing import audit
from ruler.neighbors import find_neighbors


@pytest.mark.parametrize(("n_copied", "severity"), [(1, "warn"), (20, "warn"), (21, "fail"), (35, "fail")])
def test_forget_records_in_the_retain_set(models, n_copied, severity):
    for forget, retain, _ in models.values():
        retain[:n_copied] = forget[:n_copied]
    finding, *_ = guards_of(models, ids=np.arange(500, 500 + N_FORGET))
    assert (finding.name, finding.severity) == ("duplicates", severity)
    assert f"{n_copied} of 40 forget records are identical" in finding.message
    assert "The first is 500" in finding.message


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


def place_pair(tangent, n=40):
    """Forget, retain and held-out rows without copies, but for one pair that lies this far apart."""
    rows = np.random.default_rng(0).normal(size=(3 * n, 4))
    forget, retain, held_out = np.split(rows, 3)
    forget[0], retain[0] = [1.0, tangent, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]
    return forget, retain, held_out


def test_the_least_similarity_of_a_near_copy_is_one_itself():
    least, near, far = 1 - 1e-6, 1e-3, 2e-3
    similarity = 0.0
    while similarity != least:  # to the last bit
        tangent = (near + far) / 2
        forget, retain, _ = place_pair(tangent)
        similarity = float(find_neighbors(forget[:1], retain[:1]).similarity[0, 0])
        near, far = (tangent, far) if similarity > least else (near, tangent)
    assert ("near_duplicates", "warn") in names_of({"unlearned": place_pair(tangent)})
    assert ("near_duplicates", "warn") not in names_of({"unlearned": place_pair(tangent * (1 + 1e-9))})


@pytest.mark.parametrize(("n_copied", "is_seen"), [(3, False), (4, True)])
def test_copies_count_from_the_first_that_chance_hardly_gives(random, n_copied, is_seen):
    forget, retain, held_out = np.split(random.normal(size=(840, WIDTH)), [40, 640])
    retain[1] = retain[0]  # 2 of 600: of 40 records 3 have a copy with chance 0.0003, and 4 with chance 0.00001
    forget[:n_copied] = retain[10 : 10 + n_copied]
    found = guards_of({"unlearned": (forget, retain, held_out)})
    assert ("duplicates" in [finding.name for finding in found]) == is_seen
