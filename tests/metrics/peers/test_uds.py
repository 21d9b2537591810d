import math

import numpy as np
import pytest
from tests.embeddings.causal_models import make_gpt2, make_llama, make_records

from ruler.core.errors import InputError
from ruler.core.types import PatchReading
from ruler.embeddings.language.tokens import patch_layers, read_tokens
from ruler.metrics.peers.logit_lens import logit_lens, logit_lens_depth
from ruler.metrics.peers.uds import uds, weigh_depth


def test_by_hand():
    reference = {"a": np.array([1.0, 0.04, 2.0]), "b": np.array([3.0, -1.0, 0.05])}
    found = weigh_depth({"a": np.array([0.5, 0.0, 9.0]), "b": np.array([-1.0, 0.0, 0.0])}, reference)
    np.testing.assert_allclose(found.records, [0.5 / 4, math.nan, 1.0])
    assert found.value == pytest.approx((0.125 + 1) / 2)
    assert found.layers == pytest.approx({"a": (0.5 + 2) / 3, "b": 0.0})


@pytest.mark.parametrize("make", [make_gpt2, make_llama])
def test_the_original_is_0_and_the_oracle_1(make):
    original, oracle, data = make(0), make(1), make_records(20)
    stage_1 = patch_layers(original, oracle, data)
    kept, gone = uds(patch_layers(original, original, data), stage_1), uds(stage_1, stage_1)
    assert kept.value == pytest.approx(0, abs=1e-4)
    assert gone.value == 1
    assert np.isfinite(gone.records).sum() > 10


def test_lens_of_the_original_is_0_and_of_the_oracle_1():
    data = make_records(20)
    original, oracle = (read_tokens(make_llama(seed), data, lens=True) for seed in (0, 1))
    assert logit_lens_depth(original, original, oracle).value == 0
    assert logit_lens_depth(oracle, original, oracle).value == 1
    found = logit_lens(original)
    assert list(found.layers.values())[-1] == pytest.approx(-original.losses.mean())
    assert found.value == pytest.approx(np.mean(list(found.layers.values())))
    assert logit_lens(read_tokens(make_llama(), data)).reason == "The tokens were read without lens."


def test_what_cannot_be_weighed():
    same = PatchReading(np.zeros(2), {"a": np.zeros(2)})
    assert "In no layer" in uds(same, same).reason
    with pytest.raises(InputError, match="layers must be the same"):
        uds(same, PatchReading(np.zeros(2), {"b": np.zeros(2)}))
    with pytest.raises(InputError, match="records must be the same"):
        uds(same, PatchReading(np.zeros(3), {"a": np.zeros(3)}))
