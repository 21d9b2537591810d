"""Records that are not whom they are taken for: ids, groups, columns, sides."""

import numpy as np
import pytest
from tests.auditing.guards.cases import N_FORGET, N_HELD_OUT, N_RETAIN, guards_of, names_of, shift

from ruler.auditing.gather import gather_evidence
from ruler.auditing.guards import run_guards
from ruler.auditing.guards.records import check_columns, check_swapped
from ruler.core.types import Embeddings
from ruler.stats import measure_effect


def test_ids_in_another_order_fail(models):
    names = np.array([f"record {row}" for row in range(N_FORGET)])
    order = np.arange(N_FORGET)
    order[[3, 5]] = [5, 3]
    for model, ids in (("unlearned", names), ("oracle", names[order])):
        forget, *others = models[model]
        models[model] = (Embeddings(forget, ids), *others)
    (finding,) = guards_of(models)
    assert (finding.name, finding.severity) == ("ids_differ", "fail")
    assert "unlearned and oracle hold different forget records: 2 of 40 ids differ" in finding.message
    assert "row 3: 'record 3' and 'record 5'" in finding.message
    assert "Sort both by id" in finding.cure


def test_row_numbers_are_no_names_but_their_order_is_one(models):
    forget, *others = models["oracle"]
    models["unlearned"] = (Embeddings(models["unlearned"][0]), *models["unlearned"][1:])
    named = {**models, "oracle": (Embeddings(forget, [f"a{row}" for row in range(N_FORGET)]), *others)}
    shuffled = {**models, "oracle": (Embeddings(forget, np.roll(np.arange(N_FORGET), 1)), *others)}
    assert names_of(named) == []
    assert names_of(shuffled) == [("ids_differ", "fail")]


@pytest.mark.parametrize(("first", "second"), [("forget", "retain"), ("forget", "held_out"), ("retain", "held_out")])
def test_an_id_on_two_sides_fails(models, first, second):
    sizes = {"forget": N_FORGET, "retain": N_RETAIN, "held_out": N_HELD_OUT}
    ids = {side: np.array([f"{side} {row}" for row in range(n)]) for side, n in sizes.items()}
    ids[second][7] = ids[first][0]
    (finding,) = guards_of(models, ids=ids)
    assert (finding.name, finding.severity) == ("shared_ids", "fail")
    assert f"1 ids are both {first} and {second.replace('_', '-')} records: '{first} 0'" in finding.message


@pytest.mark.parametrize(("first", "second"), [("int64", "uint64"), ("int64", "float64"), ("uint32", "int64")])
def test_numbers_of_another_type_are_the_same_ids(models, first, second):
    ids = {
        "forget": np.arange(5000, 5000 + N_FORGET, dtype=first),
        "retain": np.arange(9000, 9000 + N_RETAIN, dtype=second),
    }
    ids["retain"][3] = 5001
    assert ("shared_ids", "fail") in names_of(models, ids=ids)


def test_large_numbers_that_round_alike_are_different_ids(models):
    first, second = 2**62 + np.arange(N_FORGET), 2**62 + 1000 + np.arange(N_RETAIN)
    assert names_of(models, ids={"forget": first, "retain": second.astype(np.uint64)}) == []


def test_row_numbers_on_two_sides_share_nothing(models):
    assert names_of(models, ids=np.arange(100, 100 + N_FORGET)) == []


def test_repeated_ids_warn(models):
    ids = np.arange(1000, 1000 + N_FORGET)
    ids[:3] = 1003
    (finding,) = guards_of(models, ids=ids)
    assert (finding.name, finding.severity) == ("repeated_ids", "warn")
    assert "1003 names 4" in finding.message


def test_hostile_ids_are_cut_in_messages(models):
    ids = {
        "forget": np.array([f"{row}" + "x" * 10_000 for row in range(N_FORGET)]),
        "held_out": np.array(["0" + "x" * 10_000] * N_HELD_OUT),
    }
    assert all(len(finding.message) < 300 for finding in guards_of(models, ids=ids))


@pytest.mark.parametrize(("first", "second"), [("forget", "retain"), ("forget", "held_out"), ("retain", "held_out")])
def test_a_group_on_two_sides_fails(models, first, second):
    sizes = {"forget": N_FORGET, "retain": N_RETAIN, "held_out": N_HELD_OUT}
    groups = {side: np.array([f"{side} {row}" for row in range(n)]) for side, n in sizes.items()}
    groups[second][:2] = groups[first][0]
    (finding,) = guards_of(models, groups=groups)
    assert (finding.name, finding.severity) == ("shared_groups", "fail")
    assert "whole groups" in finding.cure


def test_more_to_forget_than_to_keep_warns(models):
    swapped = {name: (sides[1], sides[0], sides[2]) for name, sides in models.items()}
    found = {finding.name: finding for finding in guards_of(swapped)}
    assert found["swapped_sides"].severity == "warn"
    assert "more forget records (300) than retain records (40)" in found["swapped_sides"].message


def test_an_oracle_that_knows_the_forget_records_and_not_the_retain_records_fails(models, random):
    losses = [random.random(n) for n in (N_FORGET, N_RETAIN, N_HELD_OUT)]
    losses[1] *= 0.1  # what the oracle was trained on
    known = shift(models, 0.0, losses=losses)
    assert [finding.name for finding in guards_of(dict(known))] == []
    swapped = {name: (sides[1], sides[0], sides[2]) for name, sides in known.items()}
    assert ("swapped_sides", "fail") in names_of(swapped)


@pytest.mark.parametrize(
    ("forget_known", "known", "severity"),
    [(2.0, 0.0, "fail"), (2.0, 0.1, "fail"), (2.0, 0.2, "warn"), (2.0, 2.0, "warn"), (0.1, 0.0, "warn")],
)
def test_sides_are_swapped_only_if_the_oracle_knows_the_forget_and_not_the_retain_records(
    forget_known, known, severity
):
    """It knows them by 4 standard errors, and does not by 2."""
    losses = {"forget": np.arange(200.0) * 0.75, "retain": np.arange(150.0), "held_out": np.arange(150.0) + 0.5}
    losses["forget"] -= 75.0 * forget_known
    losses["retain"] -= 75.0 * known
    forget, retain = (measure_effect(losses[side], losses["held_out"]).statistic for side in ("forget", "retain"))
    assert (forget < -4 and retain > -2) == (severity == "fail")
    random = np.random.default_rng(0)
    oracle = tuple(Embeddings(random.normal(size=(len(one), 4)), losses=one + 200.0) for one in losses.values())
    evidence = gather_evidence(tuple(random.normal(size=part.shape) for part in oracle), oracle=oracle)
    (finding,) = check_swapped(evidence)
    assert (finding.name, finding.severity) == ("swapped_sides", severity)
    assert ("the oracle answers better for forget" in finding.message) == (severity == "fail")


def gather(column=None, n=(60, 200, 80), columns=None):
    """Evidence of random floats, one column of which may be replaced."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(size, 5)) for size in n]
    if column is not None:
        for number, part in enumerate(parts):
            part[:, 2] = column(len(part), number, rng)
    return gather_evidence(tuple(Embeddings(part, columns=columns) for part in parts))


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (lambda n, number, rng: np.arange(n), "whole numbers are all distinct"),
        (lambda n, number, rng: rng.permutation(10_000)[:n] + 10_000 * number, "whole numbers are all distinct"),
        (lambda n, number, rng: np.sort(rng.normal(size=n)), "rises or falls with every forget record"),
        (lambda n, number, rng: np.linspace(1, 0, n), "rises or falls with every forget record"),
    ],
)
def test_columns_that_look_like_ids_are_found(column, words):
    (finding,) = check_columns(gather(column))
    assert (finding.name, finding.severity) == ("id_column", "warn")
    assert "Column 2 (" in finding.message
    assert words in finding.message


@pytest.mark.parametrize(
    ("column", "n"),
    [
        (None, (60, 200, 80)),
        (lambda n, number, rng: rng.integers(2, size=n), (60, 200, 80)),
        (lambda n, number, rng: rng.poisson(3, size=n), (60, 200, 80)),
        (lambda n, number, rng: np.zeros(n), (60, 200, 80)),
        (lambda n, number, rng: np.arange(n), (12, 20, 9)),
    ],
)
def test_features_are_left_alone(column, n):
    assert list(check_columns(gather(column, n))) == []


def test_tables_of_counts_are_left_alone():
    rng = np.random.default_rng(0)
    parts = tuple(rng.permutation(100_000)[: size * 5].reshape(size, 5).astype(float) for size in (60, 200, 80))
    assert list(check_columns(gather_evidence(parts))) == []
    one_hot = tuple(np.eye(5)[rng.integers(5, size=size)] + 0.0 for size in (60, 200, 80))
    assert list(check_columns(gather_evidence(one_hot))) == []


@pytest.mark.parametrize("name", ["id", "Label", "target", "y", "class", " index"])
def test_names_of_columns_tell(name):
    (finding,) = check_columns(gather(columns=["a", name, "b", "c", "d"]))
    assert f"Column 1 ({name!r}: by its name)" in finding.message
    assert list(check_columns(gather(columns=["a", "identity", "b", "c", "d"]))) == []


def test_as_many_to_forget_as_to_keep_are_not_exchanged(random):
    for n_forget, names in ((40, []), (41, ["swapped_sides"])):
        rows = random.normal(size=(n_forget + 40 + 60, 5))
        found = run_guards(gather_evidence(tuple(np.split(rows, [n_forget, n_forget + 40]))))
        assert [finding.name for finding in found if finding.name == "swapped_sides"] == names


@pytest.mark.parametrize(("n_forget", "is_seen"), [(30, True), (29, False)])
def test_thirty_records_are_the_fewest_whose_columns_are_read(random, n_forget, is_seen):
    rows = random.normal(size=(n_forget + 40 + 20, 5))
    rows[:n_forget, 2] = np.sort(random.normal(size=n_forget))  # rises with every forget record
    found = run_guards(gather_evidence(tuple(np.split(rows, [n_forget, n_forget + 40]))))
    assert ("id_column" in [finding.name for finding in found]) == is_seen
