"""Greedy answers, beside transformers' own."""

import numpy as np
import pytest
import torch
from tests.embeddings.causal_models import make_gpt2, make_llama, make_opt, make_records
from transformers import MambaConfig, MambaForCausalLM

from ruler.core.errors import InputError
from ruler.embeddings.language.generation import generate_greedily

MODELS = [make_gpt2, make_llama, make_opt]


def generate_plainly(model, data, max_tokens):
    for tokens, labels in zip(data["input_ids"], data["labels"], strict=True):
        prompt = tokens[None, : int((labels != -100).nonzero()[0])]
        written = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=max_tokens, do_sample=False, pad_token_id=0
        )
        yield written[0, prompt.shape[1] :].tolist()


@pytest.mark.parametrize("make", MODELS)
def test_answers_are_those_of_transformers(make):
    model, data = make(), make_records()
    model.generation_config.eos_token_id = model.config.eos_token_id = None
    expected = list(generate_plainly(model, data, 18))
    assert len({tuple(one) for one in expected}) > 5
    assert [one.tolist() for one in generate_greedily(model, data, max_tokens=18)] == expected
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    moved = generate_greedily(model, {name: part[order] for name, part in data.items()}, max_tokens=18, batch_tokens=80)
    assert [one.tolist() for one in moved] == [expected[row] for row in order]


def test_answers_end_before_a_stop():
    model, data = make_llama(), make_records()
    whole = generate_greedily(model, data, max_tokens=18, stop=[])
    stop = int(whole[0][5])
    for own, cut in zip(whole, generate_greedily(model, data, max_tokens=18, stop=stop), strict=True):
        places = np.flatnonzero(own == stop)
        assert cut.tolist() == own[: places[0] if len(places) else None].tolist()
    model.generation_config.eos_token_id = [stop, 39]
    assert [one.tolist() for one in generate_greedily(model, data, max_tokens=18)] == [
        one.tolist() for one in generate_greedily(model, data, max_tokens=18, stop=[stop, 39])
    ]


def test_models_without_past_keys_are_refused():
    config = MambaConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=2, state_size=2, bos_token_id=0, eos_token_id=0
    )
    with pytest.raises(InputError, match="past keys and values; got MambaForCausalLM"):
        generate_greedily(MambaForCausalLM(config), make_records(2))


def test_training_mode_is_set_aside_and_restored():
    model, data = make_gpt2(), make_records()
    expected = [one.tolist() for one in generate_greedily(model, data, max_tokens=4)]
    model.train()
    assert [one.tolist() for one in generate_greedily(model, data, max_tokens=4)] == expected
    assert all(module.training for module in model.modules())
