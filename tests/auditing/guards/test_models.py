"""Models that are the same, unpaired, collapsed, unstable or broken."""

import numpy as np
import pytest
from tests.auditing.guards.cases import N_RETAIN, WIDTH, guards_of, names_of

from ruler.auditing.guards.models import check_retain_accuracy, check_stability
from ruler.auditing.settings import AuditSettings
from ruler.core.types import Embeddings


def test_a_model_that_was_not_unlearned_warns_and_stays_valid(models):
    models["unlearned"] = tuple(rows.copy() for rows in models["original"])
    assert names_of(models) == [("identical_to_original", "warn")]


def test_a_model_that_is_the_oracle_warns(models):
    models["unlearned"] = tuple(2.0 * rows for rows in models["oracle"])
    assert names_of(models) == [("identical_to_oracle", "warn")]


def test_an_oracle_that_is_the_original_fails(models):
    models["oracle"] = models["original"]
    assert names_of(models) == [("oracle_is_original", "fail")]


def test_models_that_agree_on_retain_records_alone_are_not_the_same(models):
    models["unlearned"] = (models["unlearned"][0], models["original"][1], models["unlearned"][2])
    assert names_of(models) == []


def test_other_norms_or_losses_make_another_model(models):
    longer = {**models, "unlearned": (1.3 * models["oracle"][0], *models["oracle"][1:])}
    assert "identical_to_oracle" not in [name for name, _ in names_of(longer)]
    head = {
        name: tuple(Embeddings(rows, losses=np.full(len(rows), loss)) for rows in models["oracle"])
        for name, loss in (("unlearned", 0.1), ("oracle", 0.7))
    }
    assert "identical_to_oracle" not in [name for name, _ in names_of(head)]


def test_all_zero_rows_do_not_hide_sameness(models):
    for name in ("unlearned", "original"):
        models[name] = tuple(rows.copy() for rows in models["original"])
        models[name][0][0] = 0.0
    assert ("identical_to_original", "warn") in names_of(models)


@pytest.mark.parametrize("align", ["auto", "never"])
def test_an_oracle_from_another_seed_warns(models, random, align):
    turn = np.linalg.qr(random.normal(size=(WIDTH, WIDTH)))[0]
    models["oracle"] = tuple(rows @ turn for rows in models["oracle"])
    (finding,) = guards_of(models, settings=AuditSettings(align=align))
    assert (finding.name, finding.severity) == ("unpaired_oracle", "warn")
    assert ("the aligned M1 to M3 are used" in finding.message) == (align == "auto")


def test_an_oracle_of_another_width_warns(models):
    models["oracle"] = tuple(np.hstack([rows, np.zeros((len(rows), 3))]) for rows in models["oracle"])
    (finding,) = guards_of(models)
    assert (finding.name, finding.severity) == ("unpaired_oracle", "warn")
    assert "another width" in finding.message


@pytest.mark.parametrize("model", ["unlearned", "oracle", "original"])
def test_one_direction_is_a_collapse(models, model, random):
    models[model] = tuple(1.0 + 1e-4 * random.normal(size=rows.shape) for rows in models[model])
    found = [finding for finding in guards_of(models) if finding.name == "collapsed"]
    # beside an oracle, an unlearned model that collapsed is damaged, and the evidence is sound
    assert [finding.severity for finding in found] == ["warn" if model == "unlearned" else "fail"]
    assert f"one direction in the {model} model: their effective rank is 1.0000." in found[0].message


def test_two_opposite_classes_are_a_doubt_not_a_collapse(models, random):
    models["unlearned"] = tuple(
        random.choice([-1.0, 1.0], size=(len(rows), 1)) + 1e-4 * random.normal(size=rows.shape)
        for rows in models["unlearned"]
    )
    (finding,) = [finding for finding in guards_of(models) if finding.name == "collapsed"]
    assert finding.severity == "warn"
    assert "lie on one line, in two opposite directions, in the unlearned model" in finding.message


@pytest.mark.parametrize(("share", "severity"), [(0.6, "warn"), (0.95, "fail")])
@pytest.mark.parametrize(("value", "what"), [(0.0, "all-zero rows"), (3.0, "one and the same row")])
def test_heaps_of_equal_rows_are_a_collapse(models, share, severity, value, what):
    models["unlearned"][1][: int(share * N_RETAIN)] = value
    (finding,) = [f for f in guards_of({"unlearned": models["unlearned"]}) if f.name == "collapsed"]
    assert finding.severity == severity
    assert f"{share:.0%} of the retain records are {what} in the unlearned model" in finding.message


def test_embeddings_that_change_between_calls_fail(random):
    rows = random.normal(size=(20, 4)).astype(np.float32)
    again = rows.copy()
    again[3] += 1e-3
    (finding,) = check_stability(rows, again, "oracle")
    assert (finding.name, finding.severity) == ("unstable_embeddings", "fail")
    assert "1 of 20 forget records differ" in finding.message
    for seed in range(100):
        sound = np.random.default_rng(seed).normal(size=(20, 4)).astype(np.float32)
        assert list(check_stability(sound, sound * (1 + 1e-7), "oracle")) == []


@pytest.mark.parametrize("reference", ["oracle", "original"])
def test_lost_retain_accuracy_warns(reference):
    outputs = {"unlearned": {"retain_accuracy": 0.80}, reference: {"retain_accuracy": 0.97}}
    (finding,) = check_retain_accuracy(outputs, 400)
    assert (finding.name, finding.severity) == ("retain_accuracy_lost", "warn")
    assert f"80.0% of the retain records, the {reference} on 97.0%" in finding.message


def test_accuracy_within_chance_is_not_lost(random):
    assert list(check_retain_accuracy({"unlearned": {"retain_accuracy": 0.1}}, 400)) == []
    for _ in range(100):
        accuracy = random.uniform(0.6, 0.99)
        drawn = {name: {"retain_accuracy": random.binomial(400, accuracy) / 400} for name in ("unlearned", "oracle")}
        assert list(check_retain_accuracy(drawn, 400)) == []


def test_embeddings_may_change_by_64_roundings_of_the_largest():
    rows = np.array([[1.0, 0.25], [-2.0, 0.5]])
    step = np.finfo(np.float64).eps * 2.0
    for times, n_changed in ((64, 0), (65, 1)):
        again = rows.copy()
        again[0, 1] += times * step
        assert len(list(check_stability(rows, again, "oracle"))) == n_changed


@pytest.mark.parametrize(("n_retain", "is_lost"), [(220, False), (230, True)])
def test_accuracy_is_lost_beyond_three_standard_errors(n_retain, is_lost):
    # 0.9 against 0.8: a standard error of 0.5 / sqrt(n), of which three are 0.1 at n = 225
    outputs = {"unlearned": {"retain_accuracy": 0.8}, "oracle": {"retain_accuracy": 0.9}}
    assert bool(list(check_retain_accuracy(outputs, n_retain))) == is_lost


def test_two_points_of_accuracy_may_be_lost():
    outputs = {"unlearned": {"retain_accuracy": 0.5}, "oracle": {"retain_accuracy": 0.519}}
    assert list(check_retain_accuracy(outputs, 10**9)) == []
    outputs["oracle"]["retain_accuracy"] = 0.521
    assert len(list(check_retain_accuracy(outputs, 10**9))) == 1
    assert list(check_retain_accuracy({"oracle": {"retain_accuracy": 0.9}, "unlearned": {}}, 100)) == []


@pytest.mark.parametrize(("n_equal", "severity"), [(149, None), (150, "warn"), (269, "warn"), (270, "fail")])
def test_half_and_nine_tenths_of_equal_rows_are_the_limits(models, n_equal, severity):
    models["unlearned"][1][:n_equal] = 0.0  # of 300 retain records
    found = [
        finding.severity for finding in guards_of({"unlearned": models["unlearned"]}) if finding.name == "collapsed"
    ]
    assert found == ([] if severity is None else [severity])


def test_few_retain_records_are_all_looked_at():
    for seed in range(8):
        forget, retain, held_out = np.split(np.random.default_rng(seed).normal(size=(50, 4)), [20, 30])
        retain[:5] = 0.0
        found = guards_of({"unlearned": (forget, retain, held_out)})
        assert ["50% of the retain records are all-zero rows" in one.message for one in found].count(True) == 1
