"""Causal language models: found by folder or name, loaded whole, unpacked from GGUF."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ruler.core.errors import CheckpointError, DownloadError, FileFormatError
from ruler.models import bert_mlm
from ruler.models.causal_lm import SMALL_MODEL, load_causal_language_model, resolve_causal_model


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
    monkeypatch.setattr(bert_mlm, "find_hub_model", lambda name: folder if name == SMALL_MODEL else None)
    assert resolve_causal_model() == (folder, SMALL_MODEL)
    with pytest.raises(DownloadError, match=r"someone/model must be .* give the folder of another model"):
        resolve_causal_model("someone/model")
    with pytest.raises(FileFormatError, match=r"must be a folder with a config\.json"):
        resolve_causal_model("no/such/folder")
