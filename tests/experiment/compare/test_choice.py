import numpy as np
import pytest

from ruler.experiment.compare.choice import cut_rehearsal, score_losses


@pytest.mark.parametrize("is_grouped", [False, True])
def test_a_rehearsal_reads_retain_records_alone_each_in_one_role(is_grouped: bool) -> None:
    retain = np.setdiff1d(np.arange(300), np.arange(0, 300, 10))  # every tenth is really forgotten
    groups = np.arange(300) // 5 if is_grouped else None
    parts = cut_rehearsal(retain, 30, groups)
    together = np.concatenate(parts)
    assert np.array_equal(np.sort(together), retain)
    assert 27 <= len(parts[2]) <= 32
    assert 30 <= len(parts[0]) <= 35
    if groups is not None:
        whose = [set(groups[part]) for part in parts]
        assert sum(map(len, whose)) == len(set.union(*whose))


def test_a_forget_set_larger_than_the_rest_leaves_half_of_it() -> None:
    forget, retain, validation = cut_rehearsal(np.arange(100), 400, None)
    assert (len(forget), len(retain), len(validation)) == (45, 45, 10)


def test_an_oracle_scores_zero_and_a_model_that_knows_nothing_by_its_distance() -> None:
    parts = (np.array([0, 1]), np.array([2]), np.array([3]))
    oracle = -np.log([0.5, 0.7, 0.9, 0.6])
    assert score_losses(oracle, oracle, parts) == 0
    assert score_losses(np.full(4, np.inf), oracle, parts) == pytest.approx((0.6 + 0.9 + 0.6) / 3)
