"""Folders that transformers' ``save_pretrained`` wrote -> models; no code that lies in them is run."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruler.core.errors import CheckpointError, FileFormatError, InputError
from ruler.core.optional import load_optional
from ruler.core.readers.documents import read_json
from ruler.core.readers.safety import check_at_most, limit, reading_safely, say_how_to_raise

_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
_COUNTS = re.compile(r"(n|num)_.*(layers?|blocks?|experts?|stages?)|.*_layers|depths?|n_layer")
_EDGES = re.compile(r".*(size|height|width|edge)")
_SMALL_MODEL_BYTES = 64 << 20
_DTYPES = ("float32", "float16", "bfloat16")


def load_pretrained(
    folder: str | Path,
    family: str | None = None,
    *,
    dtype: str | None = None,
    load_in: str | None = None,
    device_map: str | None = None,
) -> tuple[Any, frozenset[str]]:
    """The model in a folder, in float32 on the CPU and in eval mode, and which weights the folder lacks.

    Only ``.safetensors`` weights are read. Code in the folder, kernels from the hub and the network are never used.
    Weights that are lacking start random, from torch's global stream.

    Args:
        folder: As ``save_pretrained`` writes it.
        family: A class of transformers that chooses by ``config.json``, such as ``"AutoModelForMaskedLM"``; by default
            the class that was saved.
        dtype: The precision of the weights: float32, which is the default, float16 or bfloat16.
        load_in: "8bit" or "4bit": linear layers in that many bits, by bitsandbytes.
        device_map: "auto" spreads the model over all GPUs and, if need be, the main memory, by accelerate.

    Returns:
        The transformers model, and the names of its parameters that are not in the folder.

    Raises:
        FileFormatError: No such folder, no safetensors in it, or contents that cannot be read or need code.
        CheckpointError: Weights that do not fit the configuration.
        MissingPackageError: transformers is not installed.

    Example:
        >>> load_pretrained("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    folder = Path(folder)
    options = _choose_options(dtype, load_in, device_map)
    check_weights(folder)
    for key, number in _list_numbers(read_json(folder / "config.json")):
        if _COUNTS.fullmatch(key):
            check_at_most(number, "layers", folder / "config.json", f"layers ({key})")
    transformers = load_optional("transformers", "loading a transformers model")
    with quiet_transformers(), reading_safely(folder, "transformers model"):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        config._attn_implementation = None  # a configuration may name a kernel on the hub, which is code
        config.transformers_weights = None  # or weights of another name, which were not checked
        architecture = getattr(transformers, family) if family else _find_architecture(config, folder)
        _check_size(architecture, config, folder)
        model, info = architecture.from_pretrained(
            folder,
            config=config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    if info["mismatched_keys"]:
        name, found, expected = min(info["mismatched_keys"])
        raise CheckpointError(
            f"{folder} must hold weights of the shapes in its config.json; got {name} of {tuple(found)} instead of "
            f"{tuple(expected)}. Save the model again with save_pretrained."
        )
    is_whole = dtype is None and load_in is None
    return (model.float() if is_whole else model).eval(), frozenset(info["missing_keys"])


def _choose_options(dtype: str | None, load_in: str | None, device_map: str | None) -> dict[str, Any]:
    """Arguments of ``from_pretrained`` for precision and place."""
    known = {"dtype": _DTYPES, "load_in": ("8bit", "4bit"), "device_map": ("auto",)}
    given = {"dtype": dtype, "load_in": load_in, "device_map": device_map}
    for name, value in given.items():
        if value is not None and value not in known[name]:
            raise InputError(f"{name} must be one of {', '.join(known[name])}; got {value!r}.")
    options: dict[str, Any] = {}
    if dtype is None and load_in == "8bit":
        dtype = "float16"  # in which bitsandbytes multiplies; it warns of every other
    if dtype is not None:
        options["dtype"] = getattr(load_optional("torch", "loading a transformers model"), dtype)
    if device_map is not None:
        load_optional("accelerate", "device_map")
        options["device_map"] = device_map
    if load_in is not None:
        load_optional("bitsandbytes", f"load_in = {load_in!r}")
        transformers = load_optional("transformers", "loading a transformers model")
        how = {f"load_in_{load_in}": True, "bnb_4bit_quant_type": "nf4"}
        options["quantization_config"] = transformers.BitsAndBytesConfig(**how)
    return options


def load_tokenizer(folder: str | Path) -> Any:
    """The tokenizer in a transformers folder; code in the folder is not run and the network is left alone.

    Args:
        folder: As the tokenizer's ``save_pretrained`` writes it, beside the ``config.json`` of its model.

    Example:
        >>> load_tokenizer("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    folder = Path(folder)
    check_folder(folder)
    tokenizer = _load_beside("AutoTokenizer", folder, "tokenizer")
    # without any file transformers makes a tokenizer up, to which every word is unknown
    files = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
    if not any((folder / name).is_file() for name in files):
        raise FileFormatError(
            f"{folder} must hold a tokenizer; got none of {', '.join(sorted(files))}. "
            "Save it there with save_pretrained."
        )
    return tokenizer


def load_image_processor(folder: str | Path) -> Any:
    """The image processor in a transformers folder; code in the folder is not run and the network is left alone.

    Args:
        folder: As the processor's ``save_pretrained`` writes it, beside the ``config.json`` of its model.

    Example:
        >>> load_image_processor("no/such/folder")
        Traceback (most recent call last):
        ruler.core.errors.FileFormatError: no/such/folder must be a folder with a config.json; got nothing there. ...
    """
    folder = Path(folder)
    check_folder(folder)
    if not any((folder / name).is_file() for name in _PROCESSOR_FILES):
        raise FileFormatError(
            f"{folder} must hold an image processor; got none of {', '.join(_PROCESSOR_FILES)}. "
            "Save it there with save_pretrained, or give images that are prepared already."
        )
    for name in _PROCESSOR_FILES:
        if (folder / name).is_file():
            _check_edges(read_json(folder / name), folder / name)
    return _load_beside("AutoImageProcessor", folder, "image processor")


def _load_beside(kind: str, folder: Path, noun: str) -> Any:
    loader = getattr(load_optional("transformers", f"reading a {noun}"), kind)
    with quiet_transformers(), reading_safely(folder, noun):
        return loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def check_folder(folder: Path) -> None:
    """The folder is there and holds a ``config.json``; every JSON file of it is of bounded size."""
    if not (folder / "config.json").is_file():
        found = "none in it" if folder.is_dir() else "a file" if folder.exists() else "nothing there"
        raise FileFormatError(
            f"{folder} must be a folder with a config.json; got {found}. Save the model with save_pretrained."
        )
    for file in sorted(folder.glob("*.json")):
        check_at_most(file.stat().st_size, "json_bytes", file, "bytes")


def check_weights(folder: Path) -> None:
    """The folder holds weights that can be read without unpickling, all of them in the folder itself."""
    check_folder(folder)
    if (folder / "adapter_config.json").is_file():  # it may name a base model anywhere, and pickled weights
        raise FileFormatError(
            f"{folder} must hold a whole model; got adapter_config.json beside it. Merge the adapter into the model "
            "with merge_and_unload, and save that with save_pretrained."
        )
    for index in sorted(folder.glob("*.index.json")):
        _check_index(index)
    if not any(folder.glob("*.safetensors")):
        others = sorted(path.name for ending in ("*.bin", "*.pt", "*.h5", "*.msgpack") for path in folder.glob(ending))
        raise FileFormatError(
            f"{folder} must hold its weights as .safetensors; got {', '.join(others) or 'no weights'}. "
            "Load the model where you trust it and save it again with save_pretrained."
        )


def _check_index(index: Path) -> None:
    """Every file that an index of weights names is a .safetensors file in its folder."""
    with reading_safely(index, "index of weights"):
        names = sorted(set(read_json(index)["weight_map"].values()))
        targets = {name: (index.parent / name).resolve() for name in names}
    places = [index.parent.resolve()]
    if places[0].parent.name == "snapshots":  # the hub's cache keeps the files of its snapshots beside them
        places.append(places[0].parents[1] / "blobs")
    for name in names:
        is_plain = isinstance(name, str) and not Path(name).is_absolute() and ".." not in Path(name).parts
        if not (is_plain and any(targets[name].is_relative_to(place) for place in places)):
            raise FileFormatError(f"{index} must name files of its own folder; got {name!r}. Save the model again.")
        if not name.endswith(".safetensors"):
            raise FileFormatError(
                f"{index} must name .safetensors files only; got {name!r}. Load the model where you trust it and save "
                "it again with save_pretrained."
            )


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Let transformers load without its report and bars; its settings are as before afterwards."""
    logging = load_optional("transformers", "loading a transformers model").utils.logging
    verbosity, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_bars:
            logging.enable_progress_bar()


def _find_architecture(config: Any, folder: Path) -> Any:
    transformers = load_optional("transformers", "loading a transformers model")
    names = config.architectures or []
    found = getattr(transformers, names[0], None) if len(names) == 1 else None
    if not (isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)):
        raise FileFormatError(
            f"{folder} must name one model of transformers under architectures in its config.json; got "
            f"{json.dumps(names)}. Code that came with a model is not run."
        )
    return found


def _list_numbers(content: Any, key: str = "") -> Iterator[tuple[str, int]]:
    """Whole numbers of a JSON value, each with the nearest key above it."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _list_numbers(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from _list_numbers(value, key)
    elif isinstance(content, int):
        yield key, content


def _check_edges(config: dict[str, Any], path: Path) -> None:
    """Prepared images have a bounded number of pixels."""
    for key, number in _list_numbers(config):
        if _EDGES.fullmatch(key) and number > math.isqrt(limit("pixels")):
            raise FileFormatError(
                f"{path} must prepare images of at most {limit('pixels'):,} pixels; got {key} = {number:,}. "
                f"{say_how_to_raise('pixels')}"
            )


def _check_size(architecture: Any, config: Any, folder: Path) -> None:
    """Refuse a configuration of a model that is far larger than the weights beside it; it is built without memory."""
    torch = load_optional("torch", "loading a transformers model")
    if not issubclass(architecture, torch.nn.Module):  # one that chooses; what it does not know it tells itself
        architecture = architecture._model_mapping.get(type(config), None)
        if not isinstance(architecture, type):
            return
    on_disk = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    with torch.device("meta"):
        model = architecture(config)
    n_bytes = sum(part.numel() * part.element_size() for part in [*model.parameters(), *model.buffers()])
    if n_bytes > limit("model_growth") * on_disk + _SMALL_MODEL_BYTES:
        raise FileFormatError(
            f"{folder} must hold the weights of the model that its config.json describes; got {on_disk:,} bytes for a "
            f"model of {n_bytes:,}. {say_how_to_raise('model_growth')}"
        )
