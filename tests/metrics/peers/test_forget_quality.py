import numpy as np
import pytest
from tests.metrics.peers.readings import draw_reading, permute, read_log, read_losses

from ruler.metrics.peers.forget_quality import forget_quality


def read_answers(log):
    return read_losses(log["avg_paraphrased_loss"]), read_losses(np.ravel(log["average_perturb_loss"]))


def test_published_logs_give_the_published_p():
    full, retain = (read_answers(read_log(name)["eval_log_forget.json"]) for name in ("full", "retain90"))
    assert forget_quality(*full, *retain).value == pytest.approx(1.834e-21, rel=1e-3)
    assert forget_quality(*full, *full).value == 1


def test_order_changes_nothing():
    parts = [draw_reading(12, seed) for seed in range(4)]
    order = np.random.default_rng(0).permutation(12)
    moved = [permute(part, order) for part in parts[:2]]
    assert forget_quality(*moved, *parts[2:]).value == forget_quality(*parts).value < 1
