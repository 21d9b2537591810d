"""Sentences become the token numbers of a folder's own tokenizer, which must be able to mask."""

import json
from pathlib import Path

import pytest

from ruler.core.errors import FileFormatError
from ruler.experiment.diagnostic.vocabulary import tokenize

transformers = pytest.importorskip("transformers")


def test_sentences_are_cut_and_padded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfever\npain\n")
    tokens, vocabulary = tokenize(["fever pain fever pain", "pain"], tmp_path, 5)
    assert tokens.tolist() == [[2, 5, 6, 5, 3], [2, 6, 3, 0, 0]]
    assert (vocabulary.size, vocabulary.mask_id, vocabulary.pad_id) == (7, 4, 0)
    assert vocabulary.special_ids == (0, 1, 2, 3, 4)


def test_a_tokenizer_that_cannot_mask_is_refused(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({"fever": 0, "?": 1}, unk_token="?"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="?").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(FileFormatError, match="must have a mask and a padding token; got mask None and padding None"):
        tokenize(["fever"], tmp_path, 5)
    with pytest.raises(FileFormatError, match=r"must be a folder with a config\.json"):
        tokenize(["fever"], tmp_path / "none", 5)
