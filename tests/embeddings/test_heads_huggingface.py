"""embed on Hugging Face models with tiny random weights, against their own hidden states."""

import re

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from ruler.core.errors import InputError, LayerNotFoundError
from ruler.embeddings import embed, read_model
from ruler.embeddings.inputs import read_signature

transformers = pytest.importorskip("transformers")

ENCODER = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
}
DISTIL = {"vocab_size": 50, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 40}
GPT = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "pad_token_id": 0}
VISION = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 8,
}
BART = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
LENGTHS = [7, 3, 9, 5, 4]


def build(name, config, **settings):
    torch.manual_seed(0)
    return getattr(transformers, name)(getattr(transformers, config)(**settings))


@pytest.fixture(scope="module")
def token_lists():
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(5, 50, (length,), generator=generator) for length in LENGTHS]


@pytest.fixture(scope="module")
def padded(token_lists):
    tokens = torch.nn.utils.rnn.pad_sequence(token_lists, batch_first=True)
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long()}


@pytest.fixture(scope="module")
def images():
    return torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(6))


@torch.no_grad()
def last_hidden(model, inputs):
    return model.eval()(**inputs, output_hidden_states=True).hidden_states[-1]


def assert_close(a, b):
    np.testing.assert_allclose(a, b.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_bert_classifier_gives_the_pooled_vector(padded):
    model = build("BertForSequenceClassification", "BertConfig", **ENCODER)
    result = embed(model, padded, batch_size=2)
    hidden = last_hidden(model, padded)[:, 0]
    assert_close(result.values, torch.tanh(model.bert.pooler.dense(hidden)))
    assert result.layer == "classifier:input"


def test_distilbert_classifier_is_read_after_its_pre_classifier(padded):
    model = build("DistilBertForSequenceClassification", "DistilBertConfig", **DISTIL)
    hidden = last_hidden(model, padded)[:, 0]
    assert_close(embed(model, padded).values, torch.relu(model.pre_classifier(hidden)))


def test_roberta_classifier_is_read_after_its_dense_layer(padded):
    model = build("RobertaForSequenceClassification", "RobertaConfig", **ENCODER)
    result = embed(model, padded)
    hidden = last_hidden(model, padded)[:, 0]
    assert_close(result.values, torch.tanh(model.classifier.dense(hidden)))
    assert result.layer == "classifier.out_proj:input"


def test_bart_classifier_is_read_after_its_dense_layer(token_lists):
    model = build("BartForSequenceClassification", "BartConfig", **BART)
    tokens = torch.stack([torch.cat([row[:3], torch.tensor([model.config.eos_token_id])]) for row in token_lists])
    states = last_hidden_of_decoder(model, tokens)[:, -1]
    assert_close(embed(model, tokens).values, torch.tanh(model.classification_head.dense(states)))


@torch.no_grad()
def last_hidden_of_decoder(model, tokens):
    return model.eval().model(input_ids=tokens).last_hidden_state


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("BertForMaskedLM", "BertConfig", ENCODER),
        ("BertForPreTraining", "BertConfig", ENCODER),
        ("RobertaForMaskedLM", "RobertaConfig", ENCODER),
        ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL),
        ("AlbertForMaskedLM", "AlbertConfig", ENCODER),
        ("ElectraForMaskedLM", "ElectraConfig", ENCODER),
        ("BertModel", "BertConfig", ENCODER),
        ("BertForTokenClassification", "BertConfig", ENCODER),
        ("BertForQuestionAnswering", "BertConfig", ENCODER),
    ],
)
def test_encoders_give_the_cls_vector_of_the_last_hidden_state(padded, name, config, settings):
    model = build(name, config, **settings).train()
    result = embed(model, {**padded, "labels": padded["input_ids"]}, batch_size=2)
    assert model.training
    assert_close(result.values, last_hidden(model, padded)[:, 0])
    again = embed(model, padded, layer=result.layer, batch_size=2).values
    np.testing.assert_allclose(again, result.values, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "config", "settings"),
    [
        ("GPT2LMHeadModel", "GPT2Config", GPT),
        ("GPT2ForSequenceClassification", "GPT2Config", GPT),
        ("GPT2Model", "GPT2Config", GPT),
        ("LlamaForCausalLM", "LlamaConfig", {**ENCODER, "num_key_value_heads": 2}),
    ],
)
@pytest.mark.parametrize("has_mask", [True, False])
def test_causal_models_give_the_last_token_that_is_no_padding(padded, name, config, settings, has_mask):
    model = build(name, config, **settings)
    inputs = padded if has_mask else {"input_ids": padded["input_ids"]}
    hidden = last_hidden(model, inputs)
    expected = torch.stack([hidden[row, length - 1] for row, length in enumerate(LENGTHS)])
    assert_close(embed(model, inputs, batch_size=2).values, expected)


def test_left_padding_ends_at_the_last_token(token_lists):
    model = build("GPT2LMHeadModel", "GPT2Config", **GPT)
    tokens = torch.stack([torch.cat([torch.zeros(9 - len(row), dtype=torch.int64), row]) for row in token_lists])
    inputs = {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
    assert_close(embed(model, inputs).values, last_hidden(model, inputs)[:, -1])


def test_token_lists_are_padded_and_masked_whatever_the_batch(token_lists, padded):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    expected = embed(model, padded).values
    items = [{"input_ids": row, "id": f"s{n}", "text": "..."} for n, row in enumerate(token_lists)]
    lists = {"input_ids": [row.tolist() for row in token_lists]}
    for batch_size in (1, 2, 5):
        result = embed(model, items, batch_size=batch_size)
        np.testing.assert_allclose(result.values, expected, rtol=1e-4, atol=1e-5)
        assert result.ids.tolist() == ["s0", "s1", "s2", "s3", "s4"]
        encoding = transformers.BatchEncoding({**lists, "attention_mask": [[1] * n for n in LENGTHS]})
        np.testing.assert_allclose(embed(model, encoding, batch_size=batch_size).values, expected, rtol=1e-4, atol=1e-5)
    loader = DataLoader(items, batch_size=1)
    np.testing.assert_allclose(embed(model, loader).values, expected, rtol=1e-4, atol=1e-5)


def test_padding_uses_the_models_own_token(token_lists):
    model = build("RobertaForMaskedLM", "RobertaConfig", **{**ENCODER, "pad_token_id": 1})
    alone = np.concatenate([embed(model, row[None]).values for row in token_lists])
    result = embed(model, [{"input_ids": row} for row in token_lists])
    np.testing.assert_allclose(result.values, alone, rtol=1e-4, atol=1e-5)


def test_vocabulary_logits_are_not_computed(padded):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    model.cls.forward = None
    assert embed(model, padded).layer == "bert"


@pytest.mark.parametrize("name", ["ViTForImageClassification", "ViTModel"])
def test_vision_transformer_gives_its_class_token(images, name):
    model = build(name, "ViTConfig", **VISION)
    with torch.no_grad():
        trunk = getattr(model, "vit", model).eval()
        expected = trunk(pixel_values=images).last_hidden_state[:, 0]
    assert_close(embed(model, images).values, expected)
    assert_close(embed(model, {"pixel_values": images}).values, expected)


def test_resnet_gives_its_pooled_features(images):
    settings = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    model = build("ResNetForImageClassification", "ResNetConfig", **settings)
    with torch.no_grad():
        maps = model.eval().resnet(images).last_hidden_state
    result = embed(model, images)
    assert_close(result.values, maps.mean((2, 3)))
    assert result.layer == "classifier.1:input"
    assert_close(embed(model.resnet, images).values, maps.mean((2, 3)))


def test_encoder_decoder_needs_a_name_or_its_encoder(padded):
    settings = {"vocab_size": 50, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}
    model = build("T5ForConditionalGeneration", "T5Config", **settings)
    with pytest.raises(LayerNotFoundError, match=r"T5ForConditionalGeneration.*or embed model\.get_encoder\(\)"):
        embed(model, padded)
    with torch.no_grad():
        expected = model.eval().encoder(**padded).last_hidden_state[:, 0]
    assert_close(embed(model.get_encoder(), padded).values, expected)


def test_tuples_are_refused_since_their_meaning_is_unknown(padded):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    with pytest.raises(InputError, match=r"must be dicts or single tensors; got tuples of 2\. Name the parts"):
        embed(model, TensorDataset(padded["input_ids"], padded["attention_mask"]))


def test_misspelt_mask_is_refused(padded):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    with pytest.raises(InputError, match=r"got 'attention_masks'\. Did you mean 'attention_mask'"):
        embed(model, {"input_ids": padded["input_ids"], "attention_masks": padded["attention_mask"]})


def test_texts_must_be_tokenised():
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    with pytest.raises(InputError, match=r"got str that torch cannot take\. Tokenise texts first"):
        embed(model, ["the patient presented with chest pain"])


def test_signature_of_a_forward_that_takes_anything():
    class Open(torch.nn.Module):
        def forward(self, *args, **kwargs):
            return args

    signature = read_signature(Open())
    assert signature.pick({"input_ids": 1, "labels": 2, "id": 3}) == {"input_ids": 1}
    assert signature.pick((1, 2)) == {0: 1}


# losses


def own_loss(model, row, labels):
    """What the model itself returns as its loss, for one record without padding."""
    with torch.no_grad():
        return float(model.double().eval()(input_ids=row[None], labels=labels[None]).loss)


LANGUAGE_MODELS = [
    ("BertForMaskedLM", "BertConfig", ENCODER),
    ("RobertaForMaskedLM", "RobertaConfig", ENCODER),
    ("DistilBertForMaskedLM", "DistilBertConfig", DISTIL),
    ("ElectraForMaskedLM", "ElectraConfig", ENCODER),
    ("GPT2LMHeadModel", "GPT2Config", GPT),
    ("LlamaForCausalLM", "LlamaConfig", {**ENCODER, "num_key_value_heads": 2}),
    ("Gemma2ForCausalLM", "Gemma2Config", {**ENCODER, "num_key_value_heads": 2, "head_dim": 8}),
]


@pytest.mark.parametrize(("name", "config", "settings"), LANGUAGE_MODELS)
@pytest.mark.parametrize("batch_size", [2, 256])
def test_losses_of_language_models_are_their_own(token_lists, name, config, settings, batch_size):
    model = build(name, config, **settings)
    labels = [row.clone() for row in token_lists]
    for one in labels:
        one[0] = -100
    expected = [own_loss(model, row, one) for row, one in zip(token_lists, labels, strict=True)]
    items = [{"input_ids": row, "labels": one} for row, one in zip(token_lists, labels, strict=True)]
    found = embed(model, items, batch_size=batch_size)
    np.testing.assert_allclose(found.losses, expected, rtol=1e-6)  # causal models round their logits to float32
    assert found.labels is None
    bare = embed(model, [{"input_ids": row} for row in token_lists], batch_size=batch_size)
    if "Masked" not in name:
        found = embed(model, items, batch_size=batch_size, pooling="last")
    # one of them in batches of similar length, so that sums run in another order
    assert_close(found.values, torch.from_numpy(bare.values))
    # padding by hand, with labels that repeat it: what the mask leaves out does not count
    tokens = torch.nn.utils.rnn.pad_sequence(token_lists, batch_first=True)
    whole = tokens.clone()
    whole[:, 0] = -100
    padded = {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": whole}
    np.testing.assert_allclose(embed(model, padded, batch_size=batch_size).losses, found.losses, rtol=1e-9)


def test_left_padding_does_not_count(token_lists):
    model = build("GPT2LMHeadModel", "GPT2Config", **GPT).double()
    tokens = torch.stack([torch.cat([torch.zeros(9 - len(row), dtype=torch.int64), row]) for row in token_lists])
    inputs = {"input_ids": tokens, "attention_mask": (tokens != 0).long(), "labels": tokens}
    places = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    found = embed(model, {**inputs, "position_ids": places}).losses
    np.testing.assert_allclose(found, [own_loss(model, row, row) for row in token_lists], rtol=1e-6)


def test_logits_of_all_tokens_never_lie_side_by_side(padded, monkeypatch):
    monkeypatch.setattr("ruler.embeddings.losses.MOST_LOGITS", 150)
    model = build("GPT2LMHeadModel", "GPT2Config", **GPT).double()
    expected = embed(model, {**padded, "labels": padded["input_ids"]}).losses
    sizes, n_runs = [], []
    model.lm_head.register_forward_hook(lambda _, args, output: sizes.append(output.shape[:2].numel()))
    model.transformer.h[0].register_forward_hook(lambda *_: n_runs.append(1))
    found = embed(model, {**padded, "labels": padded["input_ids"]}, batch_size=2)
    np.testing.assert_allclose(found.losses, expected, rtol=1e-12)
    assert max(sizes[2:]) == 3  # the first two compare the head alone with the whole model on one record
    assert len(n_runs) == 3 + 2  # three batches; the first once more for stability, one record of it for the head
    assert "forward" not in vars(model.transformer)


def test_losses_of_a_layer_in_the_head_are_the_same(padded):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER).double()
    data = {**padded, "labels": padded["input_ids"]}
    expected = embed(model, data).losses
    np.testing.assert_allclose(embed(model, data, layer="cls.predictions.transform").losses, expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (torch.zeros(5, dtype=torch.int64), r"must be token ids of the input's shape, \(9,\) per record; got .*int64"),
        (torch.full((5, 9), 50), "Token labels must be 0 to 49, or -100 for tokens that do not count; got 50 to 50"),
        (torch.full((5, 9), -100), "5 of 5 records have no labelled token to predict"),
    ],
)
def test_labels_that_are_no_tokens_give_a_reason(padded, labels, reason):
    model = build("BertForMaskedLM", "BertConfig", **ENCODER)
    found = read_model(model, {**padded, "labels": labels})
    assert re.search(reason, found.why_no_losses)


def test_a_head_that_needs_more_than_hidden_states_gives_a_reason(padded):
    model = build("BertForPreTraining", "BertConfig", **ENCODER)
    found = read_model(model, {**padded, "labels": padded["input_ids"]})
    assert found.why_no_losses.startswith("The vocabulary head cannot be run apart from its trunk")
    assert read_model(model.bert, {**padded, "labels": torch.zeros(5).long()}).why_no_losses.endswith(
        "without logits, so it has no task loss."
    )


@pytest.mark.parametrize("n_labels", [1, 3])
@pytest.mark.parametrize("is_float", [False, True])
def test_losses_of_sequence_classifiers_are_their_own(padded, n_labels, is_float):
    model = build("BertForSequenceClassification", "BertConfig", num_labels=n_labels, **ENCODER).double().eval()
    targets = torch.tensor([0, 1, 0, 1, 1])
    if is_float:
        targets = targets.double() if n_labels == 1 else torch.eye(3)[targets].double()
    found = embed(model, {**padded, "labels": targets})
    if n_labels == 1 and not is_float:
        with torch.no_grad():
            logits = model(**padded).logits[:, 0]
        expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.double(), reduction="none")
    else:
        with torch.no_grad():
            parts = [{key: value[row : row + 1] for key, value in padded.items()} for row in range(5)]
            expected = [model(**part, labels=targets[row : row + 1]).loss for row, part in enumerate(parts)]
    np.testing.assert_allclose(found.losses, [float(loss) for loss in expected], rtol=1e-9)


# several layers


@pytest.mark.parametrize(
    ("name", "config", "settings", "expected"),
    [
        ("BertForMaskedLM", "BertConfig", ENCODER, ["bert.encoder.layer.0", "bert"]),
        (
            "BertForSequenceClassification",
            "BertConfig",
            ENCODER,
            ["bert.encoder.layer.0", "bert.encoder.layer.1", "classifier:input"],
        ),
        ("GPT2LMHeadModel", "GPT2Config", GPT, ["transformer.h.0", "transformer.h.1", "transformer"]),
        ("GPT2ForSequenceClassification", "GPT2Config", GPT, ["transformer.h.0", "transformer.h.1", "score:input"]),
        ("BertModel", "BertConfig", ENCODER, ["encoder.layer.0", ""]),
    ],
)
def test_all_layers_are_the_blocks_hidden_states(padded, name, config, settings, expected):
    model = build(name, config, **settings).eval()
    found = embed(model, padded, layer="all", batch_size=2)
    assert list(found) == expected
    for layer, rows in found.items():
        np.testing.assert_array_equal(rows.values, embed(model, padded, layer=layer, batch_size=2).values)
    np.testing.assert_array_equal(rows.values, embed(model, padded, batch_size=2).values)
    last = torch.tensor(LENGTHS) - 1 if "GPT2" in name else torch.zeros(5, dtype=torch.int64)
    with torch.no_grad():
        states = model(**padded, output_hidden_states=True).hidden_states[1]
    assert_close(found[expected[0]].values, states[torch.arange(5), last])
