"""One row per forget record, and per group; what the plots show."""

from dataclasses import replace

import numpy as np
import pytest
from tests.auditing.cases import FAST, QUICK, make_cleared

from ruler.auditing import audit, gather_evidence
from ruler.auditing.measure import measure_contrasts
from ruler.auditing.records import ALIKE, NOT_JUDGED, collect_distributions, tabulate_groups, tabulate_records
from ruler.auditing.strands import find_trace
from ruler.core.types import Embeddings
from ruler.metrics import percentile_rank, representation_shift
from ruler.stats.scale import shares_of_single


def tabulate(unlearned, *, is_fair=True, settings=QUICK, **options):
    evidence = replace(gather_evidence(unlearned, settings=settings, **options), is_fair=is_fair)
    found = measure_contrasts(evidence)
    records = tabulate_records(evidence, found)
    return records, tabulate_groups(evidence, found, records)


def test_columns_are_there_with_and_without_an_oracle(build_world):
    world = build_world(0)
    unlearned, oracle = world.model(gain=0.0), world.model(gain=0.0)
    bare = tabulate(tuple(part.values for part in unlearned))[0]
    full = tabulate(unlearned, oracle=oracle, original=world.model(gain=0.0))[0]
    assert bare.columns.tolist() == full.columns.tolist()
    assert bare.columns[:6].tolist() == ["id", "group", "remaining", "low", "high", "oracle_similarity"]
    assert bare.index.tolist() == list(range(150))
    missing = ["remaining", "low", "high", "oracle_similarity", "oracle_gap", "shift", "norm_ratio", "loss", "loss_gap"]
    assert bare[missing].isna().all().all()
    assert not full.drop(columns="group").isna().any().any()


def test_each_row_says_what_the_metrics_say_of_its_record(build_world):
    world = build_world(0)
    unlearned, oracle, original = (world.model(gain=0.0) for _ in range(3))
    names = [f"r{i}" for i in range(400)]
    table, _ = tabulate(unlearned, oracle=oracle, original=original, ids={"retain": names})
    rows = [part.values for part in unlearned]
    assert table["percentile_rank"].to_numpy() == pytest.approx(percentile_rank(*rows[:2]))
    expected = representation_shift(rows[0], original[0].values, oracle[0].values)
    assert table["shift"].to_numpy() == pytest.approx(expected)
    unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in rows[:2]]
    assert table["nearest_retain"].tolist() == [names[i] for i in (unit[0] @ unit[1].T).argmax(axis=1)]
    norms = np.linalg.norm(rows[0], axis=1) / np.linalg.norm(oracle[0].values, axis=1)
    assert table["norm_ratio"].to_numpy() == pytest.approx(norms)
    assert table["loss_gap"].to_numpy() == pytest.approx(unlearned[0].losses - oracle[0].losses)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("oracle_similarity", "further from the oracle than held-out records"),
        ("nearest_similarity", "nearer to retain records than held-out records"),
        ("norm_ratio", "longer than held-out records, next to the oracle"),
        ("loss_gap", "answered better than held-out records"),
    ],
)
def test_planted_records_are_flagged_by_whichever_contrast_shows_them(build_world, column, words):
    world = build_world(0)
    unlearned, oracle = world.model(gain=0.0), world.model(gain=0.0)
    if column == "oracle_similarity":
        unlearned[0].values[:20] *= -1.0
    elif column == "nearest_similarity":
        unlearned[0].values[:20] = unlearned[1].values[:20] + 1e-9
        oracle[0].values[:20] = unlearned[0].values[:20]
    elif column == "norm_ratio":
        unlearned[0].values[:20] *= 5.0
    else:
        unlearned[0].losses[:20] -= 5.0
    table, _ = tabulate(unlearned, oracle=oracle)
    is_flagged = table["finding"] != ALIKE
    if column != "nearest_similarity":  # others come near to a retain record as well
        assert is_flagged[:20].mean() >= 0.7
        assert set(table["finding"][:20]) <= {words, ALIKE}
    assert is_flagged[20:].mean() <= 0.05
    assert (table["q_value"] >= table["p_value"]).all()


def log_chance(distance):
    """Logarithm of P(D > d) = exp(-(d / scale)^shape), the Weibull tail with P = 0.3 and 0.1 at these quantiles."""
    near, far = np.quantile(distance, [0.7, 0.9])
    is_defined = near > 1e-12 and far > near * (1 + 1e-9)
    shape = min(8.0, np.log(np.log(0.1) / np.log(0.3)) / np.log(far / near)) if is_defined else 1.0
    return np.log(0.1) * (np.maximum(distance, 0.0) / max(far, 1e-12)) ** shape


@pytest.mark.parametrize("tied", ["no losses", "most losses", "large losses"])
def test_p_values_count_held_out_records_whose_rarest_score_is_as_rare(build_world, tied):
    world = build_world(3, sizes=(60, 100, 120))
    unlearned, oracle = world.model(0.3, gain=0.5), world.model(gain=0.0)
    if tied != "no losses":
        for side, part in enumerate(unlearned):  # a gap of 0, of 1, or of anything beyond
            gaps = np.arange(len(part)) % 10 / 10
            steps = (gaps >= 0.8) * 1.0 if tied == "most losses" else np.minimum(gaps, 0.6)
            part.losses[:] = oracle[side].losses + steps
            part.losses[::20] += np.linspace(0.5, 3.0, len(part.losses[::20]))
    evidence = gather_evidence(unlearned, oracle=oracle, settings=QUICK)
    found = measure_contrasts(evidence)
    usual = np.full(180, np.inf)
    for name in ("loss", "m2", "m4", "norm"):
        contrast, (strand,) = found[name].contrast, found[name].strands
        scores = strand.own
        pooled = np.concatenate([scores["forget"], scores["held_out"]])
        below, above = (log_chance(sign * (pooled - np.median(pooled))) for sign in (-1, 1))
        rarest = below if contrast.record_tail == "low" else np.minimum(below, above) + np.log(2)  # two tails: twice
        usual = np.minimum(usual, rarest)
    expected = np.array([(1 + (usual[60:] <= one + 1e-12).sum()) / 121 for one in usual[:60]])
    (ruler,) = found["loss"].strands
    if find_trace(ruler) is not None:  # then its own ranks count as well, and either is doubled
        own = [(1 + (ruler.own["held_out"] >= one - 1e-12).sum()) / 121 for one in ruler.own["forget"]]
        expected = np.minimum(1.0, 2 * np.minimum(expected, own))
    table = tabulate_records(evidence, found)
    order = np.argsort(evidence.order)
    assert table["p_value"].tolist() == pytest.approx(expected[order].tolist())


def test_p_values_are_uniform_where_nothing_is_remembered(build_world):
    p_values, any_flagged = [], []
    for seed in range(25):
        world = build_world(seed, sizes=(40, 80, 120))
        table, _ = tabulate(world.model(gain=0.0), oracle=world.model(gain=0.0))
        p_values.extend(table["p_value"])
        any_flagged.append((table["finding"] != ALIKE).any())
    assert np.mean(np.array(p_values) <= 0.05) == pytest.approx(0.05, abs=0.025)
    assert 0.3 < np.mean(np.array(p_values) <= 0.5) < 0.56  # the smaller of two, doubled
    assert np.mean(any_flagged) <= 0.2


def test_without_an_oracle_records_are_judged_by_their_nearest_retain_record(build_world):
    world = build_world(0)
    unlearned = world.model()
    unlearned[0][:30] = -10.0 * world.rng.random((30, 6)) - unlearned[1][:30]
    table, _ = tabulate(unlearned)
    assert set(table["finding"]) <= {
        ALIKE,
        "nearer to retain records than held-out records",
        "further from retain records than held-out records",
    }


def test_without_fair_held_out_records_nobody_is_judged(build_world):
    world = build_world(0)
    unlearned, oracle = world.model(3.0), world.model()
    for table, groups in (
        tabulate(unlearned, oracle=oracle, is_fair=False, groups=np.arange(150) // 10),
        tabulate(unlearned[:2], oracle=oracle[:2], groups=np.arange(150) // 10),
    ):
        assert set(table["finding"]) == set(groups["finding"]) == {NOT_JUDGED}
        assert table[["p_value", "q_value"]].isna().all().all()
        assert (groups["n_flagged"] == 0).all()


@pytest.mark.parametrize("names_control", [True, False])
def test_a_persons_records_are_judged_together(build_world, names_control):
    world = build_world(0)
    unlearned, oracle = world.model(), world.model()
    unlearned[0][:10] *= -1.0
    groups = {"forget": np.repeat([f"person {i}" for i in range(15)], 10)}
    if names_control:
        groups["held_out"] = np.repeat(np.arange(50), 6)
    _, table = tabulate(unlearned, oracle=oracle, groups=groups)
    assert table["group"].tolist() == [f"person {i}" for i in range(15)]
    assert (table["n_records"] == 10).all()
    assert table["p_value"].idxmin() == 0
    assert table["p_value"].iloc[0] == pytest.approx(1 / 51 if names_control else 1 / 31)  # 30 sets of ten
    assert (table["finding"][1:] == ALIKE).mean() > 0.9


def test_without_groups_there_is_no_table_of_groups(build_world):
    assert tabulate(build_world(0).model())[1] is None


def test_few_memorised_records_are_flagged_where_held_out_records_allow_it(build_world):
    for n_held_out, n_found in ((1200, 5), (60, 0)):
        world = build_world(0, sizes=(60, 300, n_held_out))
        report = audit(
            world.model(np.where(np.arange(60) < 5, 2.0, 0.0), gain=0.0),
            oracle=world.model(gain=0.0),
            original=world.model(0.5, gain=1.0),
            settings=FAST,
        )
        is_flagged = ~report.records["finding"].isin([ALIKE, NOT_JUDGED])
        assert (is_flagged[:5].sum() >= 3) == (n_found > 0)
        assert is_flagged[5:].sum() <= 1
        assert report.verdict != "erased" or not n_found


def test_records_are_listed_in_the_order_given(build_world):
    world = build_world(0)
    names = np.array([f"r{row}" for row in range(sum(world.sizes))])
    model = world.model(gain=0.0, ids=names)
    report = audit(model, oracle=world.model(gain=0.0), settings=FAST)
    assert report.records["id"].tolist() == names[:150].tolist()
    assert report.records["loss"].to_numpy() == pytest.approx(model[0].losses)


def test_distributions_are_thinned_for_plots_and_hold_curves(build_world):
    given = make_cleared(build_world)
    found = audit(**given | {"settings": replace(FAST, n_plotted=50)}).distributions
    assert set(found.scores) == {"loss", "tangent", "m2", "m4", "norm"}
    assert set(found.roc) == set(found.scores) - {"tangent"}  # whose scores know the original
    assert {side: len(rows) for side, rows in found.scores["m4"].items()} == dict.fromkeys(
        ("forget", "retain", "held_out"), 50
    )
    assert found.rank_counts["forget"].sum() == 150
    for false, true in found.roc.values():
        assert (np.diff(false) >= 0).all()
        assert (np.diff(true) >= 0).all()
        assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)


def collect(unlearned, **changes):
    evidence = gather_evidence(unlearned, settings=replace(FAST, **changes))
    found = measure_contrasts(evidence)
    return evidence, found, collect_distributions(evidence, found)


def test_distributions_are_those_of_the_layer_that_tells_most(build_world):
    world = build_world(0, sizes=(40, 80, 60))
    moved = world.model(40.0)
    layers = tuple({"first": first, "last": last} for first, last in zip(moved, world.model(), strict=True))
    _, found, shown = collect(layers)
    layer = found["m4"].told.layer
    assert set(shown.scores) == {"m4"}
    for side, values in found["m4"].scores[layer].items():
        assert shown.scores["m4"][side].tolist() == values.tolist()
    bare = tuple({name: rows[::-1] for name, rows in side.items()} for side in layers[:2])
    _, found, shown = collect(bare)  # without held-out records, the last layer
    assert shown.scores["m4"]["forget"].tolist() == found["m4"].scores["last"]["forget"].tolist()
    assert shown.roc == {}


def test_long_sides_are_thinned_and_ranks_are_counted(build_world):
    evidence, found, shown = collect(build_world(0, sizes=(10, 80, 60)).model(), n_plotted=10)
    assert {side: len(values) for side, values in shown.scores["m4"].items()} == dict.fromkeys(evidence.ids, 10)
    scores = found["m4"].scores[evidence.main_layer]
    assert shown.scores["m4"]["forget"].tolist() == scores["forget"].tolist()  # ten are not too many
    assert set(shown.scores["m4"]["held_out"]) <= set(scores["held_out"])
    assert set(shown.rank_counts) == {"forget", "held_out"}
    for side, counts in shown.rank_counts.items():
        ranks = [(scores["retain"] <= own).mean() for own in scores[side]]
        assert counts.tolist() == np.histogram(ranks, np.linspace(0, 1, 21))[0].tolist()


def test_q_values_at_alpha_name_a_record(build_world):
    world = build_world(0)
    unlearned, oracle = world.model(), world.model()
    unlearned[0][:20] *= -1.0
    table, _ = tabulate(unlearned, oracle=oracle)
    q_value = table["q_value"][0]
    at, _ = tabulate(unlearned, oracle=oracle, settings=replace(FAST, alpha=q_value))
    below, _ = tabulate(unlearned, oracle=oracle, settings=replace(FAST, alpha=q_value * 0.999))
    assert at["finding"][0] != ALIKE
    assert below["finding"][0] == ALIKE


@pytest.mark.parametrize("size", [1, 2, 30, 300])
def test_groups_of_any_size_meet_sets_of_as_many_held_out_records(build_world, size):
    world = build_world(0, sizes=(300, 80, 300))
    unlearned, oracle = world.model(), world.model()
    _, table = tabulate(unlearned, oracle=oracle, groups=np.arange(300) // size)
    assert table["n_records"].tolist() == [size] * (300 // size)
    if size == 300:  # too few held-out records for ten sets of as many
        assert table["p_value"].isna().all()
        assert table["finding"].tolist() == [NOT_JUDGED]
        return
    assert table["p_value"].between(1 / (300 // size + 1), 1).all()
    assert np.mean(table["p_value"] <= 0.05) <= 0.1


def test_groups_count_their_flagged_records(build_world):
    world = build_world(0)
    unlearned, oracle = world.model(), world.model()
    unlearned[0][:20] *= -1.0
    records, table = tabulate(unlearned, oracle=oracle, groups=np.arange(150) // 10)
    flagged = records["finding"] != ALIKE
    assert flagged.any()
    assert table["n_flagged"].tolist() == [int(flagged[start : start + 10].sum()) for start in range(0, 150, 10)]
    assert table["nearest_similarity"].tolist() == pytest.approx(
        [records["nearest_similarity"][start : start + 10].mean() for start in range(0, 150, 10)]
    )


def test_losses_stand_beside_the_last_of_several_layers(build_world):
    world = build_world(0, sizes=(20, 60, 40))
    models = [
        tuple({"first": Embeddings(part.values[:, ::-1]), "last": part} for part in world.model(gain=0.0))
        for _ in range(2)
    ]
    table, _ = tabulate(models[0], oracle=models[1])
    losses = [model[0]["last"].losses for model in models]
    assert table["loss"].tolist() == losses[0].tolist()
    assert table["loss_gap"].to_numpy() == pytest.approx(losses[0] - losses[1])


# what remains of each


def measure(build_world, n_held_out=400, gain=0.0, settings=QUICK, size=None, named=False, **options):
    world = build_world(0, sizes=(80, 400, n_held_out))
    world.hardness *= 0.3
    groups = None
    if size:
        groups = {"forget": np.arange(80) // size} | ({"held_out": np.arange(n_held_out) // size} if named else {})
    models = {"oracle": world.model(gain=0.0), "original": world.model(0.5, gain=2.0)} | options
    evidence = gather_evidence(world.model(gain=gain), **models, groups=groups, settings=settings)
    found = measure_contrasts(evidence)
    records = tabulate_records(evidence, found)
    return evidence, found, records, tabulate_groups(evidence, found, records)


def test_a_records_share_is_of_a_typical_records_trace(build_world):
    gain = np.where(np.arange(80) < 20, 2.0, 0.0)
    _, found, records, _ = measure(build_world, gain=gain)
    assert records["remaining"][:20].mean() == pytest.approx(1.0, abs=0.15)
    assert records["remaining"][20:].mean() == pytest.approx(0.0, abs=0.15)
    is_held = (records["low"] <= np.repeat([1.0, 0.0], (20, 60))) & (records["high"] >= np.repeat([1.0, 0.0], (20, 60)))
    assert is_held.mean() >= 0.85
    (strand,) = found["loss"].strands
    trace = find_trace(strand)
    assert trace.scale == "original"
    assert trace.size == pytest.approx(strand.before[:80].mean() - strand.before[80:].mean())


def test_limits_are_conformal_among_held_out_records(build_world):
    evidence, found, records, _ = measure(build_world, original=None)  # one ruler: the loss, on the members' scale
    (strand,) = found["loss"].strands
    trace = find_trace(strand)
    assert trace.scale == "members"
    assert trace.size == pytest.approx(strand.members.mean() - strand.plain[80:].mean())
    expected = shares_of_single(strand.own["forget"], strand.own["held_out"], trace.size, alpha=0.05)
    order = np.argsort(evidence.order)
    for name, row in zip(("remaining", "low", "high"), expected, strict=False):
        assert records[name].tolist() == row[order].tolist()


@pytest.mark.parametrize("named", [True, False])
def test_a_persons_share_is_of_a_typical_persons_trace(build_world, named):
    gain = np.where(np.arange(80) < 20, 2.0, 0.0)
    *_, records, people = measure(build_world, gain=gain, size=10, named=named)
    assert people["remaining"][:2].mean() == pytest.approx(1.0, abs=0.15)
    assert people["remaining"][2:].mean() == pytest.approx(0.0, abs=0.15)
    assert (people["low"] <= people["remaining"]).all()
    assert (people["remaining"] <= people["high"]).all()
    # means of ten records are known far better than one record
    assert (people["high"] - people["low"]).median() < 0.7 * (records["high"] - records["low"]).median()
    assert (people["low"][:2] > 0.3).all()


def test_persons_are_held_by_their_limits_as_often_as_they_say(build_world):
    held = []
    for seed in range(12):
        world = build_world(seed, sizes=(60, 200, 240))
        groups = {"forget": np.arange(60) // 3, "held_out": np.arange(240) // 3}
        models = {"oracle": world.model(gain=0.0), "original": world.model(0.5, gain=2.0)}
        table = tabulate(world.model(gain=0.0), **models, groups=groups)[1]
        held.append(((table["low"] <= 0) & (table["high"] >= 0)).mean())
    assert np.mean(held) == pytest.approx(0.95, abs=0.05)


def test_scores_that_know_the_original_tell_nothing_of_single_records(build_world):
    # held-out records scatter less by them, even if nothing remains
    world = build_world(0)
    records, _ = tabulate(world.model(), oracle=world.model(), original=world.model(0.5))
    assert records["remaining"].isna().all()


@pytest.mark.parametrize("kind", ["unfair", "no held-out", "not seen"])
def test_what_cannot_be_known_of_a_record_is_missing(build_world, kind):
    world = build_world(0)
    unlearned, oracle, original = (world.model() for _ in range(3))  # the original shows nothing
    if kind != "not seen":
        unlearned, oracle, original = world.model(gain=0.0), world.model(gain=0.0), world.model(0.5, gain=2.0)
    if kind == "no held-out":
        unlearned, oracle, original = unlearned[:2], oracle[:2], original[:2]
    records, people = tabulate(
        unlearned, oracle=oracle, original=original, is_fair=kind != "unfair", groups=np.arange(150) // 10
    )
    assert records[["remaining", "low", "high"]].isna().all().all()
    assert people[["remaining", "low", "high"]].isna().all().all()


def test_a_single_record_is_measured_by_members(build_world):
    world = build_world(0, sizes=(1, 300, 200))
    models = {"oracle": world.model(gain=0.0), "original": world.model(0.5, gain=2.0)}
    evidence = gather_evidence(world.model(gain=0.0), **models, settings=QUICK)
    found = measure_contrasts(evidence)
    assert find_trace(found["loss"].strands[0]).scale == "members"
    assert list(found["loss"].finding.remaining) == ["members"]
    alone = gather_evidence(world.model(gain=0.0)[:2], settings=QUICK)
    assert measure_contrasts(alone)["loss"].strands == ()
