import math

import numpy as np
import pytest
from tests.embeddings.causal_models import make_llama, make_records

from ruler.core.errors import InputError
from ruler.embeddings.language.generation import generate_greedily
from ruler.embeddings.language.tokens import HEAD_INPUT
from ruler.metrics.peers import OWN, measure_peers
from ruler.metrics.peers.language import name_reference, read_language_model


class Words:
    """Writes token 5 as "w5"."""

    def batch_decode(self, rows, *, skip_special_tokens):
        assert skip_special_tokens
        return [" ".join(f"w{token}" for token in row) for row in rows]


DATA = {
    "forget": make_records(12, seed=1),
    "held_out": make_records(14, seed=2),
    "paraphrased": make_records(12, seed=3),
    "perturbed": make_records(36, seed=4),
}


@pytest.fixture(scope="module")
def everything():
    original, oracle, model = make_llama(0), make_llama(1), make_llama(2)
    asked = {"original": original, "tokenizer": Words(), "max_tokens": 5}
    part = dict.fromkeys(("probability", "rouge", "truth_ratio"), 0.5)
    return {
        **read_language_model(model, DATA, **asked),
        **name_reference("oracle", read_language_model(oracle, DATA, **asked)),
        **name_reference("original", read_language_model(original, DATA)),
        "forget_answers": ["w1 w2 w3"] * 12,
        "utility": {"retain": part, "real_authors": part, "world_facts": part},
    }


def test_every_metric_of_language_models_has_a_number_in_its_range(everything):
    found = measure_peers(everything, list(OWN)[: list(OWN).index("uds") + 1])
    for name, one in found.items():
        low, high = OWN[name].range
        assert not math.isnan(one.value), f"{name}: {one.reason}"
        assert low <= one.value <= high, name
        assert one.records is None or one.records.shape == (12,)


def test_parts_are_read_as_they_were_asked_for(everything):
    assert list(everything["forget_states"]) == [*everything["forget_tokens"].lens, HEAD_INPUT]
    assert len(everything["perturbed_tokens"]) == 36
    answers = generate_greedily(make_llama(2), DATA["forget"], max_tokens=5)
    assert everything["forget_generations"][0] == " ".join(f"w{token}" for token in answers[0])


def test_entities_alone_are_patched_where_they_are_marked():
    labels = DATA["forget"]["labels"].clone()
    for row in range(len(labels)):
        labels[row, (labels[row] != -100).nonzero()[1:, 0]] = -100  # the first token alone
    data = {"forget": DATA["forget"], "entities": {**DATA["forget"], "labels": labels}}
    found = read_language_model(make_llama(2), data, original=make_llama(0))
    expected = read_language_model(make_llama(0), {"forget": data["forget"]})["forget_tokens"].log_probs[:, 0]
    np.testing.assert_allclose(found["forget_patches"].base, expected, atol=1e-5)


def test_unknown_sets_and_models_are_refused():
    with pytest.raises(InputError, match="data must hold forget"):
        read_language_model(make_llama(), {"forgotten": DATA["forget"]})
    with pytest.raises(InputError, match=r"of others only .*; got forget, retain"):
        read_language_model(make_llama(), {"forget": DATA["forget"], "retain": DATA["forget"]})
    with pytest.raises(InputError, match="data must hold forget"):
        read_language_model(make_llama(), {"held_out": DATA["forget"]})
    with pytest.raises(InputError, match="'oracle' or 'original'"):
        name_reference("retain", {})
