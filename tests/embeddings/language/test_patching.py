"""States of one model put into another."""

import copy

import numpy as np
import pytest
import torch
from tests.embeddings.causal_models import make_gpt2, make_llama, make_opt, make_records

from ruler.core.errors import InputError
from ruler.embeddings.language.patching import patch_layers
from ruler.embeddings.language.tokens import read_tokens

MODELS = [make_gpt2, make_llama, make_opt]


def list_blocks(model):
    trunk = model.transformer if hasattr(model, "transformer") else getattr(model.model, "decoder", model.model)
    return trunk.h if hasattr(trunk, "h") else trunk.layers


def patch_plainly(target, source, data, layer):
    """Mean log p per record, by a full pass for each with a hook on one block."""
    means = []
    for tokens, mask, labels in zip(data["input_ids"], data["attention_mask"], data["labels"], strict=True):
        tokens, own = tokens[None, : int(mask.sum())], (labels != -100).nonzero()[:, 0]
        kept = []

        def swap(_, args, output, kept=kept, own=own):
            states = output[0] if isinstance(output, tuple) else output
            if not kept:
                kept.append(states[0, own - 1])
                return None
            states = states.clone()
            states[0, own - 1] = kept[0]
            return (states, *output[1:]) if isinstance(output, tuple) else states

        for model in (source, target):
            handle = list_blocks(model)[layer].register_forward_hook(swap)
            with torch.no_grad():
                logits = model(tokens).logits
            handle.remove()
        log_probs = torch.log_softmax(logits[0, own - 1].double(), dim=1)
        means.append(float(log_probs.gather(1, labels[own][:, None]).mean()))
    return means


@pytest.mark.parametrize("make", MODELS)
def test_patched_answers_are_those_of_full_passes(make):
    target, source, data = make(0), make(1), make_records()
    found = patch_layers(target, source, data, batch_tokens=30)
    np.testing.assert_allclose(found.base, -read_tokens(target, data).losses, atol=1e-5)
    assert len(found.layers) == 3
    for number, means in enumerate(found.layers.values()):
        np.testing.assert_allclose(means, patch_plainly(target, source, data, number), atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_only_layers_behind_a_difference_change(make):
    target, data = make(), make_records()
    source = copy.deepcopy(target)
    with torch.no_grad():
        for weight in list_blocks(source)[1].parameters():
            weight.mul_(1.5)
    found = patch_layers(target, source, data)
    first, _, last = found.layers.values()
    np.testing.assert_allclose(first, found.base, atol=1e-6)
    np.testing.assert_allclose(last, -read_tokens(source, data).losses, atol=1e-5)
    assert np.abs(last - found.base).max() > 0.01


def test_models_are_left_as_they_were():
    target, source, data = make_gpt2(0), make_gpt2(1), make_records()
    expected = patch_layers(target, source, data)
    target.train()
    source.train()
    again = patch_layers(target, source, data)
    for name, means in expected.layers.items():
        np.testing.assert_array_equal(again.layers[name], means)
    for model in (target, source):
        assert all(module.training for module in model.modules())
        assert not any(module._forward_hooks or "forward" in vars(module) for module in model.modules())


def test_models_must_be_of_one_shape():
    shallow = make_gpt2()
    shallow.transformer.h = shallow.transformer.h[:2]
    with pytest.raises(InputError, match="blocks of target, 3; got 2"):
        patch_layers(make_gpt2(), shallow, make_records())
