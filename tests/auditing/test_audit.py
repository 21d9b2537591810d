import numpy as np
import pytest
from scipy.stats import ortho_group

import ruler
from ruler.auditing import AuditSettings, GuardFinding, audit, audit_evidence, gather_evidence

FAST = AuditSettings(n_permutations=199, n_bootstrap=99)


def test_nothing_left_is_erased_with_equivalence_shown(make_world):
    unlearned, oracle = make_world()
    report = audit(unlearned, oracle=oracle, settings=FAST)
    assert report.verdict == "erased"
    assert {name: one.verdict for name, one in report.metrics.items()} == {
        "m1": "descriptive",
        "m2": "erased",
        "m4": "erased",
    }
    assert all(report.metrics[name].equivalence_p_value <= 0.05 for name in ("m2", "m4"))


def test_values_are_the_papers_numbers_and_nulls_are_the_controls(make_world):
    unlearned, oracle = make_world(moved=0.3)
    original, _ = make_world(seed=0, moved=0.9)
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    expected = ruler.all_metrics(unlearned[0], unlearned[1], oracle[0], oracle[1], original[0])
    assert {name: one.value for name, one in report.metrics.items()} == pytest.approx(expected)
    held_out = ruler.all_metrics(unlearned[2], unlearned[1], oracle[2], oracle[1], original[2])
    assert {name: one.null for name, one in report.metrics.items()} == pytest.approx(held_out)
    for one in report.metrics.values():
        assert one.interval[0] <= one.value <= one.interval[1]
        assert one.difference == pytest.approx(one.value - one.null)
        assert one.difference_interval[0] <= one.difference <= one.difference_interval[1]
        assert one.effect_interval[0] <= one.effect <= one.effect_interval[1]


def test_records_off_the_oracle_are_residual_and_without_the_original_the_reading_is_said(make_world):
    unlearned, oracle = make_world(moved=0.4)
    report = audit(unlearned, oracle=oracle, settings=FAST)
    assert report.verdict == "residual"
    assert report.metrics["m2"].effect < 0.4
    assert "the paper's reading of the sign" in report.metrics["m2"].reason


def test_the_originals_own_contrast_is_residual_on_either_side(make_world):
    unlearned, oracle = make_world(moved=0.4)
    aside = [np.full((150, 1), 1.5), np.zeros((400, 1)), np.zeros((250, 1))]
    original = tuple(np.hstack(pair) for pair in zip(unlearned, aside, strict=True))
    wide = tuple(np.hstack([rows, np.zeros((len(rows), 1))]) for rows in oracle)
    report = audit(original, oracle=wide, original=original, settings=FAST)
    assert report.metrics["m2"].verdict == "residual"
    assert report.metrics["m2"].share_left == pytest.approx(1.0)
    # apart from retain records: the paper would read this sign as over-displacement
    assert report.metrics["m4"].effect < 0.3
    assert "original" in report.metrics["m4"].reason


def test_a_contrast_that_the_original_lacks_is_displaced(make_world):
    unlearned, oracle = make_world(moved=0.8)
    original, _ = make_world()
    report = audit(unlearned, oracle=oracle, original=original, settings=FAST)
    assert report.verdict == "displaced"
    assert report.metrics["m2"].share_left is None
    assert "new" in report.metrics["m2"].reason


def test_a_small_forget_set_is_inconclusive_and_says_what_it_could_have_seen(make_world):
    unlearned, oracle = ((forget[:8], retain, held_out) for forget, retain, held_out in make_world())
    report = audit(unlearned, oracle=oracle, settings=FAST)
    m2 = report.metrics["m2"]
    assert report.verdict == "inconclusive"
    assert m2.p_value > 0.05
    assert m2.minimum_detectable_effect > 0.2
    assert m2.n_needed > 8


def test_without_an_oracle_m4_alone_decides(make_world):
    unlearned, _ = make_world(nearer=0.95)
    report = audit(unlearned, settings=FAST)
    assert list(report.metrics) == ["m4"]
    assert report.verdict == report.metrics["m4"].verdict == "residual"
    assert report.metrics["m4"].adjusted_p_value == report.metrics["m4"].p_value


def test_without_held_out_records_placebos_decide_and_the_weakness_is_said(make_world):
    unlearned, oracle = (rows[:2] for rows in make_world())
    report = audit(unlearned, oracle=oracle, settings=FAST)
    assert {one.control for one in report.metrics.values()} == {"placebo"}
    assert "retain records were trained on" in report.metrics["m4"].reason
    assert report.metrics["m2"].verdict == report.verdict == "erased"
    assert "as retain records" in report.reason
    planted, _ = make_world(nearer=0.95)
    assert audit(planted[:2], settings=FAST).verdict == "residual"


def test_likeness_to_retain_records_alone_never_shows_erasure(make_world):
    # a model that remembers forget and retain records alike looks just so
    unlearned, _ = make_world()
    report = audit(unlearned[:2], settings=FAST)
    assert report.metrics["m4"].equivalence_p_value <= 0.05
    assert report.verdict == report.metrics["m4"].verdict == "inconclusive"
    assert "only held-out records can show erasure" in report.reason


def test_a_failed_guard_makes_the_audit_invalid(make_world):
    unlearned, oracle = make_world()
    evidence = gather_evidence(unlearned, oracle=oracle, settings=FAST)
    doubt = GuardFinding("stability", "fail", "Embeddings changed between two calls.", "Use eval mode.")
    report = audit_evidence(evidence, extra_guards=[doubt], outputs={"unlearned": {"retain_accuracy": 0.9}})
    assert report.verdict == report.metrics["m2"].verdict == report.metrics["m4"].verdict == "invalid"
    assert "Embeddings changed" in report.reason
    assert report.guards[0] is doubt
    assert report.outputs["unlearned"]["retain_accuracy"] == 0.9


def test_an_oracle_with_other_axes_is_aligned(make_world):
    unlearned, oracle = make_world()
    turn = ortho_group.rvs(6, random_state=0)
    turned = tuple(rows @ turn for rows in oracle)
    report = audit(unlearned, oracle=turned, settings=FAST)
    plain = audit(unlearned, oracle=oracle, settings=FAST)
    assert report.pairing.is_aligned
    assert not plain.pairing.is_aligned
    assert report.metrics["m1"].value == pytest.approx(plain.metrics["m1"].value, abs=0.01)
    assert report.metrics["m2"].plain_value is not None
    assert report.metrics["m2"].aligned_value == pytest.approx(report.metrics["m2"].value)
    assert report.metrics["m2"].verdict == "erased"


def test_an_oracle_of_another_width_is_audited_aligned(make_world):
    unlearned, oracle = make_world()
    wide = tuple(rows @ ortho_group.rvs(9, random_state=0)[:6] for rows in oracle)
    report = audit(unlearned, oracle=wide, settings=FAST)
    assert report.pairing.is_aligned
    assert np.isnan(report.metrics["m1"].plain_value)
    assert report.metrics["m1"].value > 0.9


def test_the_same_seed_gives_the_same_report(make_world):
    unlearned, oracle = make_world(moved=0.2)
    first, second = (audit(unlearned, oracle=oracle, settings=FAST) for _ in range(2))
    assert first.metrics == second.metrics
    assert first.records.equals(second.records)


def test_scale_and_rotation_of_all_models_change_nothing(make_world):
    unlearned, oracle = make_world(moved=0.2)
    turn = 7.0 * ortho_group.rvs(6, random_state=1)
    plain = audit(unlearned, oracle=oracle, settings=FAST)
    turned = audit(tuple(r @ turn for r in unlearned), oracle=tuple(r @ turn for r in oracle), settings=FAST)
    for name, one in plain.metrics.items():
        assert turned.metrics[name].effect == pytest.approx(one.effect, abs=1e-9)
        assert turned.metrics[name].p_value == one.p_value


def test_groups_move_whole_and_widen_the_error():
    rng = np.random.default_rng(5)
    base = np.repeat(rng.normal(size=(160, 6)), 5, axis=0)
    offset = np.repeat(rng.normal(size=(160, 6)), 5, axis=0)
    cut = [150, 550]
    unlearned, oracle = np.split(base + 0.3 * offset, cut), np.split(base, cut)
    names = np.split(np.repeat(np.arange(160), 5), cut)
    groups = dict(zip(("forget", "retain", "held_out"), names, strict=True))
    grouped = audit(tuple(unlearned), oracle=tuple(oracle), groups=groups, settings=FAST).metrics["m2"]
    single = audit(tuple(unlearned), oracle=tuple(oracle), settings=FAST).metrics["m2"]
    assert (grouped.n_forget, grouped.n_control) == (30, 50)
    assert grouped.minimum_detectable_effect > 1.5 * single.minimum_detectable_effect


def test_the_room_answers_as_the_function(make_world):
    unlearned, _ = make_world()
    assert ruler.audit(unlearned, settings=FAST).verdict == "erased"


def test_provenance_tells_arrays_apart(make_world):
    unlearned, oracle = make_world()
    arrays = audit(unlearned, oracle=oracle, settings=FAST).provenance["arrays"]
    assert arrays["unlearned"]["forget"]["shape"] == [150, 6]
    assert arrays["unlearned"]["forget"]["sha256"] != arrays["oracle"]["forget"]["sha256"]


def test_distributions_are_thinned_for_plots(make_world):
    unlearned, oracle = make_world()
    settings = AuditSettings(n_permutations=99, n_bootstrap=99, n_plotted=50)
    found = audit(unlearned, oracle=oracle, settings=settings).distributions
    assert {side: len(rows) for side, rows in found.nearest_similarity.items()} == dict.fromkeys(
        ("forget", "retain", "held_out"), 50
    )
    assert found.rank_counts["forget"].sum() == 150


def test_a_model_that_is_still_the_original_is_never_cleared():
    random = np.random.default_rng(5)
    rows = tuple(random.normal(size=(n, 8)) for n in (300, 600, 600))
    changed = tuple(side + 1e-3 * random.normal(size=side.shape) for side in rows)
    assert audit(changed, original=rows).verdict == "erased"
    untouched = audit(rows, original=rows)
    assert untouched.verdict == "inconclusive"
    assert "A model that was not changed cannot be cleared." in untouched.reason


def test_placebos_of_single_records_are_no_control_for_groups(make_world):
    unlearned, _ = make_world()
    forget, retain = unlearned[:2]
    groups = {"forget": np.arange(len(forget)) // 5}
    alone = audit((forget, retain), groups=groups, settings=FAST).metrics["m4"]
    assert alone.verdict == "inconclusive"
    assert "Name the retain records' groups too" in alone.reason
    both = audit((forget, retain), groups=groups | {"retain": 1000 + np.arange(len(retain)) // 5}, settings=FAST)
    assert "Name the retain" not in both.metrics["m4"].reason
