"""Tiny language models, as ``save_pretrained`` leaves them."""

from pathlib import Path

import pytest

WORDS = [f"w{number}" for number in range(40)]


@pytest.fixture
def causal_model(tmp_path: Path) -> Path:
    """A Llama of a few thousand weights, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: place for place, word in enumerate(["</s>", "?", "Question", "Answer", ":", *WORDS])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "tiny"
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>").save_pretrained(folder)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def masked_model(tmp_path: Path) -> Path:
    """A BERT without a language-model head, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path / "masked"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "was", "seen", ".", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads of masked models are kept in the cache."""
    monkeypatch.setenv("RULER_CACHE", str(tmp_path / "cache"))
