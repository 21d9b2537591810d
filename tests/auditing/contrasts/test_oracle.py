"""M1, M2, M3 and the norm: records next to a model that never saw them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from tests.auditing.cases import DECIDING, FAST, make_cleared

from ruler.auditing import audit
from ruler.auditing.contrasts import OWN


def effects(report):
    return {name: report.metrics[name].effect for name in DECIDING if name in report.metrics}


def test_what_the_original_lacks_is_displaced(make_world):
    unlearned, oracle = make_world(seed=1, moved=0.8)
    original, _ = make_world(seed=1)
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    assert report.verdict == "displaced"
    assert report.metrics["m2"].verdict == "displaced"
    assert report.metrics["m2"].remaining == {}


def test_longer_representations_are_seen(build_world):
    world = build_world(0)
    unlearned = world.model()
    unlearned[0][:] *= 1.3
    report = audit(unlearned, oracle=world.model(), original=world.model(0.5), settings=FAST)
    assert report.metrics["norm"].place.p_value <= 0.05
    assert [name for name in DECIDING if report.metrics.get(name, report.metrics["m4"]).place.p_value <= 0.05] == [
        "norm"
    ]
    assert report.metrics["norm"].verdict == "residual"  # longer than held-out ones in the original, too


def test_scale_and_rotation_of_all_models_change_nothing(build_world):
    given = make_cleared(build_world)
    turn = 7.0 * ortho_group.rvs(6, random_state=1)

    def move(model):
        return tuple(replace(part, values=part.values @ turn) for part in model)

    plain = audit(**given)
    turned = audit(**{name: move(value) if isinstance(value, tuple) else value for name, value in given.items()})
    assert turned.verdict == plain.verdict
    assert effects(turned) == pytest.approx(effects(plain), abs=1e-9)
    assert turned.damage.similarity == pytest.approx(plain.damage.similarity, abs=0.05)
    for name in DECIDING:  # other rows draw other labellings
        assert turned.metrics[name].p_value == pytest.approx(plain.metrics[name].p_value, abs=0.1)


def test_an_oracle_of_another_width_is_audited_aligned(make_world):
    unlearned, oracle = make_world()
    wide = tuple(rows @ ortho_group.rvs(9, random_state=0)[:6] for rows in oracle)
    report = audit(unlearned, oracle=wide, settings=FAST)
    assert report.pairing.is_aligned
    assert np.isnan(report.metrics["m1"].plain_value)
    assert report.metrics["m1"].value > 0.9


def test_the_table_holds_the_papers_nulls():
    assert {name: one.paper_null for name, one in OWN.items() if one.paper_null is not None} == {
        "m2": 0.0,
        "m3": 0.0,
        "m4": 0.5,
    }
