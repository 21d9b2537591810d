from pathlib import Path

import pytest
import torch

from ruler.models.pretrained import quiet_transformers


@pytest.fixture
def bert_folder(tmp_path: Path) -> Path:
    """A tiny masked language model with a trained head, as far as a file can tell."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    with quiet_transformers():
        transformers.BertForMaskedLM(bert_config()).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def bert_config():
    transformers = pytest.importorskip("transformers")
    return transformers.BertConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
    )


@pytest.fixture
def tiny_config():
    return bert_config()
