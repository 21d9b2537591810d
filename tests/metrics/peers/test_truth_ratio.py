import numpy as np
import pytest
from tests.metrics.peers.readings import make_reading, read_log, read_losses

from ruler.core.errors import InputError
from ruler.metrics.peers.truth_ratio import truth_ratio


def test_geometric_mean_of_false_answers_over_the_true_one():
    true = make_reading([[-1.0, -3.0], [-2.0]])
    false = make_reading([[-4.0], [-2.0, -2.0], [-1.0], [-1.0, -3.0, -2.0]])
    found = truth_ratio(true, false)
    np.testing.assert_allclose(found.records, [np.exp(-3.0 + 2.0), np.exp(-1.5 + 2.0)])
    assert found.value == pytest.approx(found.records.mean())


@pytest.mark.parametrize("model", ["full", "retain90"])
@pytest.mark.parametrize("part", ["eval_log_forget.json", "eval_log.json", "eval_real_author_wo_options.json"])
def test_published_losses_give_the_published_ratios(model, part):
    log = read_log(model)[part]
    true, false = read_losses(log["avg_paraphrased_loss"]), read_losses(np.ravel(log["average_perturb_loss"]))
    np.testing.assert_allclose(truth_ratio(true, false).records, log["truth_ratio"], rtol=1e-5)


def test_every_record_has_as_many_false_answers():
    with pytest.raises(InputError, match="3 rows for 2 records"):
        truth_ratio(make_reading([[-1.0]] * 2), make_reading([[-1.0]] * 3))
