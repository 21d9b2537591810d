import math

import numpy as np
import pytest
from scipy.stats import hmean
from tests.metrics.peers.readings import read_log, read_losses

from ruler.core.errors import InputError
from ruler.metrics.peers.model_utility import measure_part, model_utility

FILES = {
    "retain": "eval_log.json",
    "real_authors": "eval_real_author_wo_options.json",
    "world_facts": "eval_real_world_wo_options.json",
}


def measure_log(log, part):
    numbers = log[FILES[part]]
    return measure_part(
        read_losses(numbers["avg_gt_loss"]),
        read_losses(np.ravel(numbers["average_perturb_loss"])),
        float(np.mean(numbers["rougeL_recall"])),
        paraphrased_tokens=read_losses(numbers["avg_paraphrased_loss"]),
        is_choice=part != "retain",
    )


@pytest.mark.parametrize("model", ["full", "retain90"])
def test_published_logs(model):
    log = read_log(model)
    utility = {part: measure_log(log, part) for part in FILES}
    for part in ("real_authors", "world_facts"):
        published = np.exp(-np.array(log[FILES[part]]["normalized_gt_loss"])).mean()
        assert utility[part]["probability"] == pytest.approx(published, abs=1e-6)
    numbers = [value for part in utility.values() for value in part.values()]
    assert model_utility(utility).value == pytest.approx(hmean(numbers))
    assert 0.55 < model_utility(utility).value < 0.7  # the paper's Figure: about 0.62 for Llama-2-7B


def test_what_lacks_is_said():
    part = dict.fromkeys(("probability", "rouge", "truth_ratio"), 0.5)
    with pytest.raises(InputError, match="got none for world_facts probability"):
        model_utility({"retain": part, "real_authors": part})
    found = model_utility({"retain": {**part, "rouge": math.nan}, "real_authors": part, "world_facts": part})
    assert found.reason == "One of the nine numbers has no value."
    assert model_utility({"retain": {**part, "rouge": 0.0}, "real_authors": part, "world_facts": part}).value == 0
