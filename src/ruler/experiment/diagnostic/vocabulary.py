"""Sentences -> token numbers, by the tokenizer of a local transformers folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ruler.models.bert_mlm import load_masking_tokenizer


@dataclass(frozen=True)
class Vocabulary:
    """The token numbers that masking must know.

    Args:
        special_ids: Numbers of tokens that are never masked, such as [CLS].
    """

    size: int
    pad_id: int
    mask_id: int
    special_ids: tuple[int, ...]


def tokenize(sentences: Sequence[str], folder: Path, most_tokens: int) -> tuple[npt.NDArray[np.int64], Vocabulary]:
    """Token numbers (n, n_tokens), cut at ``most_tokens`` and padded to the longest; and their vocabulary.

    Raises:
        FileFormatError: No tokenizer in the folder, or one that cannot mask or pad.
    """
    tokenizer = load_masking_tokenizer(folder)
    encoded = tokenizer(
        list(sentences), truncation=True, max_length=most_tokens, padding="longest", return_attention_mask=False
    )
    vocabulary = Vocabulary(
        len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id, tuple(sorted(tokenizer.all_special_ids))
    )
    return np.asarray(encoded["input_ids"], dtype=np.int64), vocabulary
