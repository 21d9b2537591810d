"""What a causal language model says of completion tokens, beside one plain forward pass per record."""

import copy

import numpy as np
import pytest
import torch
from tests.embeddings.causal_models import make_gemma, make_gpt2, make_llama, make_opt, make_records

from ruler.core.errors import InputError, LayerNotFoundError
from ruler.embeddings.language.generation import generate_greedily
from ruler.embeddings.language.tokens import HEAD_INPUT, patch_layers, read_tokens

MODELS = [make_gpt2, make_llama]


def read_plainly(model, data):
    """By record: log-probabilities (length, n_words), targets, and states (layers, length, p) where they predict."""
    for tokens, mask, labels in zip(data["input_ids"], data["attention_mask"], data["labels"], strict=True):
        own = (labels != -100).nonzero()[:, 0]
        with torch.no_grad():
            output = model(tokens[None, : int(mask.sum())], output_hidden_states=True)
        states = torch.stack(output.hidden_states)[:, 0, own - 1]
        yield torch.log_softmax(output.logits[0, own - 1].double(), dim=1), labels[own], states


@pytest.mark.parametrize("make", MODELS)
def test_tokens_are_scored_as_by_plain_passes(make):
    model, data = make(), make_records()
    reading = read_tokens(model, data, moments=True)
    for row, (log_probs, targets, _) in enumerate(read_plainly(model, data)):
        n = len(targets)
        own = log_probs.gather(1, targets[:, None])[:, 0]
        mean = (log_probs.exp() * log_probs).sum(dim=1)
        deviation = ((log_probs.exp() * log_probs**2).sum(dim=1) - mean**2).sqrt()
        np.testing.assert_allclose(reading.log_probs[row, :n], own, atol=1e-5)
        np.testing.assert_allclose(reading.means[row, :n], mean, atol=1e-5)
        np.testing.assert_allclose(reading.deviations[row, :n], deviation, atol=1e-5)
        assert reading.hits[row, :n].tolist() == (log_probs.argmax(dim=1) == targets).tolist()
        assert np.isnan(reading.log_probs[row, n:]).all()
        assert not reading.hits[row, n:].any()
        assert reading.lengths[row] == n


@pytest.mark.parametrize("make", [*MODELS, make_opt, make_gemma])
def test_losses_are_those_of_the_model_itself(make):
    model, data = make(), make_records()
    reading = read_tokens(model, data, lens=True, hidden="mean")
    np.testing.assert_allclose(list(reading.lens.values())[-1], reading.log_probs, atol=1e-5)
    assert reading.hidden[HEAD_INPUT].shape == (9, model.get_output_embeddings().in_features)
    for row, expected in enumerate(reading.losses):
        one = {name: part[row : row + 1] for name, part in data.items()}
        assert float(model(**one).loss.detach()) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_states_and_lens_are_those_of_each_block(make):
    model, data = make(), make_records()
    reading = read_tokens(model, data, lens=True, hidden="mean")
    last = read_tokens(model, data, hidden="last").hidden
    norm = model.transformer.ln_f if make is make_gpt2 else model.model.norm
    assert [*reading.lens, HEAD_INPUT] == list(reading.hidden)
    assert len(reading.lens) == 3
    for row, (_, targets, states) in enumerate(read_plainly(model, data)):
        # transformers gives the last block's states behind the norm
        np.testing.assert_allclose(reading.hidden[HEAD_INPUT][row], states[-1].mean(dim=0), atol=1e-5)
        np.testing.assert_allclose(last[HEAD_INPUT][row], states[-1][-1], atol=1e-5)
        for number, name in enumerate(list(reading.lens)[:-1], 1):
            np.testing.assert_allclose(reading.hidden[name][row], states[number].mean(dim=0), atol=1e-5)
            np.testing.assert_allclose(last[name][row], states[number][-1], atol=1e-5)
            with torch.no_grad():
                seen = torch.log_softmax(model.lm_head(norm(states[number])), dim=1)
            expected = seen.gather(1, targets[:, None])[:, 0]
            np.testing.assert_allclose(reading.lens[name][row, : len(targets)], expected, atol=1e-5)
    np.testing.assert_allclose(list(reading.lens.values())[-1], reading.log_probs, atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_order_of_records_and_size_of_batches_change_nothing(make):
    model, data = make(), make_records()
    whole = read_tokens(model, data, moments=True, lens=True, hidden="mean")
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    moved = read_tokens(
        model,
        {name: part[order] for name, part in data.items()},
        moments=True,
        lens=True,
        hidden="mean",
        batch_tokens=20,
    )
    for name in ("log_probs", "hits", "means", "deviations"):
        np.testing.assert_allclose(getattr(moved, name), getattr(whole, name)[order], atol=1e-5)
    for layer in whole.lens:
        np.testing.assert_allclose(moved.lens[layer], whole.lens[layer][order], atol=1e-5)
        np.testing.assert_allclose(moved.hidden[layer], whole.hidden[layer][order], atol=1e-5)


def test_model_is_read_in_eval_mode_and_left_as_it_was():
    model, data = make_gpt2(), make_records()
    expected = read_tokens(model, data).log_probs
    model.train()
    model.transformer.h[1].eval()
    before = [module.training for module in model.modules()]
    np.testing.assert_array_equal(read_tokens(model, data, lens=True, hidden="mean").log_probs, expected)
    assert [module.training for module in model.modules()] == before
    assert not any(module._forward_hooks for module in model.modules())
    assert "forward" not in vars(model.transformer)


def test_bfloat16_is_near_and_other_words_are_refused():
    model, data = make_llama(), make_records()
    exact, rounded = (read_tokens(model, data, lens=True, precision=one) for one in ("float32", "bfloat16"))
    assert 0 < np.nanmax(np.abs(exact.log_probs - rounded.log_probs)) < 0.5
    with pytest.raises(InputError, match="precision must be"):
        read_tokens(model, data, precision="float16")


def test_data_that_cannot_be_read_is_refused():
    model, data = make_gpt2(), make_records()
    left = {name: part.flip(1) for name, part in data.items()}
    with pytest.raises(InputError, match="padding on the right"):
        read_tokens(model, left)
    labels = data["labels"].clone()
    labels[[1, 4]] = -100
    with pytest.raises(InputError, match="2 records without, the first is row 1"):
        read_tokens(model, {**data, "labels": labels})
    with pytest.raises(InputError, match="data must hold labels; got input_ids"):
        read_tokens(model, {"input_ids": data["input_ids"]})
    with pytest.raises(InputError, match="shape of input_ids"):
        read_tokens(model, {**data, "labels": data["labels"][:, 1:]})
    with pytest.raises(LayerNotFoundError, match="causal language model"):
        read_tokens(torch.nn.Linear(2, 2), data)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_the_same_numbers_and_hands_the_model_back():
    model, data = make_llama(), make_records()
    own, other = (read_tokens(model, data, moments=True, lens=True, hidden="mean", device=at) for at in (None, "cuda"))
    for name in ("log_probs", "hits", "means", "deviations"):
        np.testing.assert_allclose(getattr(other, name), getattr(own, name), atol=1e-4)
    for layer, rows in own.hidden.items():
        np.testing.assert_allclose(other.hidden[layer], rows, atol=1e-4)
    patched = [patch_layers(model, make_llama(1), data, device=at).layers for at in (None, "cuda")]
    written = [generate_greedily(model, data, max_tokens=8, stop=[], device=at) for at in (None, "cuda")]
    for layer, means in patched[0].items():
        np.testing.assert_allclose(patched[1][layer], means, atol=1e-4)
    assert [one.tolist() for one in written[0]] == [one.tolist() for one in written[1]]
    assert next(model.parameters()).device.type == "cpu"


PATCHED = [make_gpt2, make_llama, make_opt]


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


@pytest.mark.parametrize("make", PATCHED)
def test_patched_answers_are_those_of_full_passes(make):
    target, source, data = make(0), make(1), make_records()
    found = patch_layers(target, source, data, batch_tokens=30)
    np.testing.assert_allclose(found.base, -read_tokens(target, data).losses, atol=1e-5)
    assert len(found.layers) == 3
    for number, means in enumerate(found.layers.values()):
        np.testing.assert_allclose(means, patch_plainly(target, source, data, number), atol=1e-5)


@pytest.mark.parametrize("make", PATCHED)
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
