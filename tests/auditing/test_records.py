import numpy as np
import pytest

from ruler.auditing import AuditSettings, gather_evidence
from ruler.auditing.records import ALIKE, tabulate_groups, tabulate_records
from ruler.metrics import percentile_rank, representation_shift

FAST = AuditSettings(n_permutations=199, n_bootstrap=99)


def test_columns_are_there_with_and_without_an_oracle(make_world):
    unlearned, oracle = make_world()
    bare = tabulate_records(gather_evidence(unlearned, settings=FAST))
    full = tabulate_records(gather_evidence(unlearned, oracle=oracle, original=oracle, settings=FAST))
    assert bare.columns.tolist() == full.columns.tolist()
    assert bare[["oracle_similarity", "oracle_gap", "shift", "oracle_p_value"]].isna().all().all()
    assert not full.drop(columns="group").isna().any().any()


def test_each_row_says_what_the_metrics_say_of_its_record(make_world):
    unlearned, oracle = make_world()
    names = [f"r{i}" for i in range(400)]
    evidence = gather_evidence(unlearned, oracle=oracle, original=oracle, ids={"retain": names}, settings=FAST)
    table = tabulate_records(evidence)
    assert table["percentile_rank"].to_numpy() == pytest.approx(percentile_rank(*unlearned[:2]))
    assert table["shift"].to_numpy() == pytest.approx(representation_shift(unlearned[0], oracle[0], oracle[0]))
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in unlearned[:2]]
    assert table["nearest_retain"].tolist() == [names[i] for i in (unit[0] @ unit[1].T).argmax(axis=1)]


def test_planted_records_are_flagged_and_the_rest_is_not(make_world):
    unlearned, oracle = make_world()
    unlearned[0][:20] *= -1.0
    table = tabulate_records(gather_evidence(unlearned, oracle=oracle, settings=FAST))
    is_flagged = table["finding"] != ALIKE
    assert is_flagged[:20].all()
    assert is_flagged[20:].mean() <= 0.05
    assert set(table["finding"][:20]) == {"further from the oracle than the control"}
    assert (table["q_value"] >= table["p_value"]).all()


def test_false_discoveries_stay_under_alpha(make_world):
    flagged = []
    for seed in range(12):
        unlearned, oracle = make_world(seed)
        table = tabulate_records(gather_evidence(unlearned, oracle=oracle, settings=FAST))
        flagged.append((table["finding"] != ALIKE).any())
    assert np.mean(flagged) <= 0.25


def test_without_an_oracle_records_are_judged_by_their_nearest_retain_record(make_world):
    unlearned, _ = make_world()
    unlearned[0][:30] = unlearned[1][:30] + 1e-9
    table = tabulate_records(gather_evidence(unlearned, settings=FAST))
    assert set(table["finding"][:30]) == {"nearer to retain records than the control"}
    assert (table["p_value"] == table["nearest_p_value"]).all()


@pytest.mark.parametrize("names_control", [True, False])
def test_a_persons_records_are_judged_together(make_world, names_control):
    unlearned, oracle = make_world()
    unlearned[0][:10] *= -1.0
    groups = {"forget": np.repeat([f"person {i}" for i in range(15)], 10)}
    if names_control:
        groups["held_out"] = np.repeat(np.arange(50), 5)
    evidence = gather_evidence(unlearned, oracle=oracle, groups=groups, settings=FAST)
    table = tabulate_groups(evidence, tabulate_records(evidence))
    assert table["group"].tolist() == [f"person {i}" for i in range(15)]
    assert (table["n_records"] == 10).all()
    assert table["p_value"].idxmin() == 0
    assert table["p_value"].iloc[0] == pytest.approx(1 / 51 if names_control else 1 / 200)
    assert (table["finding"][1:] == ALIKE).mean() > 0.9


def test_without_groups_there_is_no_table_of_groups(make_world):
    evidence = gather_evidence(make_world()[0], settings=FAST)
    assert tabulate_groups(evidence, tabulate_records(evidence)) is None
