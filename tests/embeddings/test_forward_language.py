"""Language models that write: which positions stand for a record, and what its loss is."""

import numpy as np
import pytest
import torch
import transformers
from tests.embeddings.cases import assert_close

from ruler.core.errors import InputError
from ruler.embeddings import embed, read_model

N_WORDS = 40
COMMON = {"vocab_size": N_WORDS, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
LLAMA = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "decoder_start_token_id": 1,
}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
CAUSAL = [
    ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 16, "n_layer": 3, "n_head": 2}),
    ("LlamaForCausalLM", "LlamaConfig", LLAMA),
]
TWO_STACKS = [
    ("T5ForConditionalGeneration", "T5Config", T5),
    ("BartForConditionalGeneration", "BartConfig", BART),
]
LENGTHS = [(3, 4), (9, 2), (1, 6), (5, 1), (2, 2), (7, 7)]  # tokens of prompt and completion


def build(name, config, settings):
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**COMMON, **settings)).eval()


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(1)

    def draw(n):
        return torch.randint(3, N_WORDS, (n,), generator=generator)

    return [(draw(n_prompt), draw(n_completion)) for n_prompt, n_completion in LENGTHS]


def pad(rows, value):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def join(parts):
    """The convention of `encode_prompts`."""
    whole = [torch.cat(pair) for pair in parts]
    labels = [torch.cat([torch.full_like(prompt, -100), completion]) for prompt, completion in parts]
    return {
        "input_ids": pad(whole, 0),
        "attention_mask": pad([torch.ones_like(row) for row in whole], 0),
        "labels": pad(labels, -100),
    }


def split(parts):
    prompts = [prompt for prompt, _ in parts]
    return {
        "input_ids": pad(prompts, 0),
        "attention_mask": pad([torch.ones_like(row) for row in prompts], 0),
        "labels": pad([completion for _, completion in parts], -100),
    }


@torch.no_grad()
def read_alone(model, prompt, completion):
    """States that predict the completion, and the model's own loss, of one record without padding."""
    if model.config.is_encoder_decoder:
        found = model(input_ids=prompt[None], labels=completion[None], output_hidden_states=True)
        return found.decoder_hidden_states[-1][0].mean(dim=0).numpy(), float(found.loss)
    labels = torch.cat([torch.full_like(prompt, -100), completion])
    tokens = torch.cat([prompt, completion])[None]
    states = model.base_model(input_ids=tokens).last_hidden_state[0, len(prompt) - 1 : -1]
    return states.mean(dim=0).numpy(), float(model(input_ids=tokens, labels=labels[None]).loss)


@pytest.mark.parametrize(("name", "config", "settings"), CAUSAL + TWO_STACKS)
@pytest.mark.parametrize("batch_size", [2, 256])
def test_a_record_is_the_mean_over_what_predicts_its_completion(parts, name, config, settings, batch_size):
    model = build(name, config, settings)
    encode = split if config in ("T5Config", "BartConfig") else join
    found = embed(model, encode(parts), batch_size=batch_size)
    alone = [read_alone(model, *pair) for pair in parts]
    assert_close(found.values, np.stack([rows for rows, _ in alone]))
    assert_close(found.losses, [loss for _, loss in alone])
    order = [4, 1, 5, 0, 3, 2]
    again = embed(model, encode([parts[row] for row in order]), batch_size=batch_size)
    assert_close(again.values, found.values[order])
    assert_close(again.losses, found.losses[order])


@pytest.mark.parametrize(("name", "config", "settings"), CAUSAL)
def test_lists_of_tokens_are_read_like_padded_ones(parts, name, config, settings):
    model = build(name, config, settings)
    labels = [torch.cat([torch.full_like(prompt, -100), completion]) for prompt, completion in parts]
    items = [
        {"input_ids": torch.cat(pair).tolist(), "labels": one.tolist(), "id": f"r{row}"}
        for row, (pair, one) in enumerate(zip(parts, labels, strict=True))
    ]
    found, padded = embed(model, items, batch_size=2), embed(model, join(parts), batch_size=2)
    assert_close(found.values, padded.values)
    assert_close(found.losses, padded.losses)
    assert found.ids.tolist() == [f"r{row}" for row in range(len(parts))]


def test_all_layers_hold_what_enters_the_final_norm(parts):
    model = build(*CAUSAL[1])
    layers = embed(model, join(parts), layer="all")
    assert list(layers) == ["model.layers.0", "model.layers.1", "model.layers.2", "model"]
    prompt, completion = parts[0]
    with torch.no_grad():
        states = []
        handle = model.model.norm.register_forward_pre_hook(lambda _, args: states.append(args[0]))
        model(input_ids=torch.cat([prompt, completion])[None])
        handle.remove()
    expected = states[0][0, len(prompt) - 1 : -1].mean(dim=0)
    assert_close(layers["model.layers.2"].values[0], expected.numpy())


def test_all_layers_of_two_stacks_are_the_decoders(parts):
    layers = embed(build(*TWO_STACKS[0]), split(parts), layer="all")
    assert list(layers) == ["decoder.block.0", "decoder.block.1", "decoder"]
    assert len({rows.losses.tobytes() for rows in layers.values()}) == 1


def test_the_last_token_and_a_marked_span_are_choices(parts):
    model = build(*CAUSAL[1])
    data = join(parts)
    marks = torch.zeros_like(data["labels"])
    places = [len(prompt) + len(completion) - 1 for prompt, completion in parts]
    marks[range(len(parts)), places] = 1  # the last token, which the place before it predicts
    with torch.no_grad():
        alone = [model.model(input_ids=torch.cat(pair)[None]).last_hidden_state[0] for pair in parts]
    found = read_model(model, {**data, "span_mask": marks}, pooling="span")
    assert_close(found.layers["model"].values, np.stack([states[-2].numpy() for states in alone]))
    assert found.pooling == {"model": "mean over the positions that predict a token of the marked span"}
    assert_close(embed(model, data, pooling="last").values, np.stack([states[-1].numpy() for states in alone]))
    items = [
        {"input_ids": torch.cat(pair), "labels": torch.cat(pair), "span_mask": marks[row, : sum(LENGTHS[row])]}
        for row, pair in enumerate(parts)
    ]
    assert_close(embed(model, items, pooling="span").values, found.layers["model"].values)


def test_an_encoder_layer_keeps_the_last_token_of_its_prompt(parts):
    model = build(*TWO_STACKS[0])
    with torch.no_grad():
        expected = [model.encoder(input_ids=prompt[None]).last_hidden_state[0, -1].numpy() for prompt, _ in parts]
    assert_close(embed(model, split(parts), layer="encoder").values, np.stack(expected))


@pytest.mark.parametrize(("name", "config", "settings"), CAUSAL + TWO_STACKS)
def test_logits_are_made_for_the_tokens_that_count_alone(parts, name, config, settings):
    model = build(name, config, settings)
    n_rows = []
    model.get_output_embeddings().register_forward_hook(lambda _, args, out: n_rows.append(out.shape[:-1].numel()))
    is_split = config in ("T5Config", "BartConfig")
    embed(model, (split if is_split else join)(parts))
    n_counted = sum(n for _, n in LENGTHS)
    n_checked = 14 if not is_split else 7  # the longest record once, by the whole model and by the head alone
    n_sliced = 2 * len(parts) if is_split else 0  # one place per record, in both passes over the first batch
    assert sum(n_rows) <= n_counted + 2 * n_checked + n_sliced


def test_batches_have_bounded_numbers_of_tokens(parts, monkeypatch):
    monkeypatch.setattr("ruler.embeddings.sources.MOST_TOKENS", 28)
    model = build(*CAUSAL[0])
    shapes = []
    model.transformer.wte.register_forward_hook(lambda _, args, out: shapes.append(tuple(args[0].shape)))
    expected = [read_alone(model, *pair)[1] for pair in parts]
    shapes.clear()
    found = read_model(model, join(parts))
    assert_close(next(iter(found.losses.values())), expected)
    assert found.n_tokens.tolist() == [n for _, n in LENGTHS]
    assert max(n * t for n, t in shapes) <= 28
    assert shapes[-1] == (4, 7)  # records of 4 to 7 tokens, not padded to 14


def test_asking_again_takes_the_same_batches(parts):
    """Bits must agree, or a stable model would be called unstable."""
    model = build(*CAUSAL[1])
    whole = read_model(model, join(parts), batch_size=2)
    some = read_model(model, join(parts), batch_size=2, n_most=3)
    assert some.rows.tolist() == [0, 1, 2, 5]  # two whole batches, of the longest
    np.testing.assert_array_equal(some.layers["model"].values, whole.layers["model"].values[some.rows])


@pytest.mark.parametrize(
    ("change", "pooling", "message"),
    [
        (lambda data: {**data, "labels": torch.full_like(data["labels"], -100)}, None, "got none in 6 of 6 records"),
        (lambda data: {key: data[key] for key in ("input_ids", "attention_mask")}, "completion", "got none. Encode"),
        (lambda data: data, "span", "under the key 'span_mask'; got None"),
        (lambda data: data, "mean", "pooling must be one of completion, last, span"),
    ],
)
def test_what_cannot_be_pooled_is_refused(parts, change, pooling, message):
    with pytest.raises(InputError, match=message):
        embed(build(*CAUSAL[0]), change(join(parts)), pooling=pooling)


def test_weights_that_accelerate_fetches_from_disk_are_read_too(parts, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    model = build(*CAUSAL[1])
    expected = embed(model, join(parts))
    places = {"model.layers.1": "disk", "model.layers.2": "disk", "model.layers.0": "cpu", "lm_head": "cpu"}
    places |= {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu"}
    spread = accelerate.dispatch_model(model, places, main_device="cpu", offload_dir=tmp_path, force_hooks=True)
    assert any(parameter.is_meta for parameter in spread.parameters())
    found = embed(spread, join(parts))
    assert_close(found.values, expected.values)
    assert_close(found.losses, expected.losses)
