"""Which contrasts an audit measures, and at which layers."""

import pytest
from tests.auditing.cases import FAST, make_class, run_audit, score_peak

from ruler.auditing import audit
from ruler.auditing.contrasts import Contrast
from ruler.core.types import Embeddings


def test_five_oracles_need_no_fair_held_out_records(build_world):
    clean = [audit(**make_class(build_world, seed, 5)) for seed in range(5)]
    assert {one.metrics["m2"].test for one in clean} == {"hybrid"}
    assert all(one.verdict in ("inconclusive", "erased") for one in clean)
    assert {guard.severity for one in clean for guard in one.guards if guard.name == "not_exchangeable"} == {"note"}
    assert audit(**make_class(build_world, 0, 5, mark=0.5)).verdict == "residual"
    assert audit(**make_class(build_world, 0, 5, gain=1.0)).verdict == "residual"


def make_layers(build_world, memory):
    """A model of three layers; ``memory[layer]`` of its marks are left."""
    world = build_world(1)
    names = ("first", "second", "last")
    losses = world.lose()

    def model(marks):
        layers = [world.cut(world.embed(mark)) for mark in marks]
        return tuple(
            {
                name: Embeddings(layer[side], losses=world.cut(losses)[side])
                for name, layer in zip(names, layers, strict=True)
            }
            for side in range(3)
        )

    return {"unlearned": model(memory), "oracle": model((0, 0, 0)), "original": model((0.5, 0.5, 0.5))}


def test_the_layer_that_gives_the_records_away_is_named(build_world):
    report = audit(**make_layers(build_world, (0.0, 0.5, 0.0)), settings=FAST)
    m2 = report.metrics["m2"]
    assert report.verdict == m2.verdict == "residual"
    assert m2.layer == "second"
    assert "at second" in m2.reason
    assert [one.layer for one in m2.layers] == ["first", "second", "last"]
    assert m2.layers[1].effect < 0.3 < 0.4 < m2.layers[0].effect
    assert report.metrics["loss"].layer is None
    assert report.provenance["layers"] == ["first", "second", "last"]


def test_memory_at_an_earlier_layer_alone_is_never_erased(build_world):
    given = make_layers(build_world, (0.5, 0.0, 0.0))
    assert audit(**given, settings=FAST).verdict == "residual"
    last = {name: tuple(part["last"] for part in model) for name, model in given.items()}
    assert audit(**last, settings=FAST).verdict != "residual"


def test_a_metric_that_needs_more_than_was_given_is_left_out(build_world, table):
    table.register("peak", Contrast("Peakedness", score_peak, needs=("losses",)))
    assert "peak" not in run_audit(build_world().model(), table).metrics


@pytest.mark.parametrize(
    ("name", "score", "message"),
    [
        ("Peak", score_peak, r"metrics must be named by lower-case letters, digits and _; got 'Peak'"),
        (
            "peak",
            lambda model, oracles: {side: rows[:-1, 0] for side, rows in model.rows.items()},
            r"metric 'peak' must score every forget record, shape \(150,\); got \(149,\)",
        ),
        ("peak", lambda model, oracles: {"forget": model.rows["forget"][:, 0]}, "must score every retain record"),
        (
            "peak",
            lambda model, oracles: {side: rows[:, 0] / 0.0 for side, rows in model.rows.items()},
            "metric 'peak' must be finite; got NaN or inf for forget records",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_metric_that_does_not_score_every_record_is_named(build_world, table, name, score, message):
    table.register(name, Contrast("Peakedness", score))
    with pytest.raises(ValueError, match=message):
        run_audit(build_world().model(), table)
