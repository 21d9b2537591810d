"""Models of the Hugging Face hub: from its cache on this machine, or fetched once where the hub can be reached."""

import os
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import torch

from ruler.core.errors import FileFormatError
from ruler.core.locations import cache_folder
from ruler.core.optional import load_optional
from ruler.core.readers.arrays import read_torch

_PATIENCE_S = 5.0
_PICKLED = "pytorch_model.bin"
_BESIDE = ["*.json", "*.txt", "*.model"]  # configuration and tokenizer
_FILES = [*_BESIDE, "*.safetensors", _PICKLED]


def find_hub_model(name: str) -> Path | None:
    """The folder of a hub model: the hub's cache, else a download; None where it is in neither reach.

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
    folder = _fetch(name, local_files_only=True)
    if (folder is None or not _has_weights(folder)) and _is_hub_in_reach():
        folder = _fetch(name, local_files_only=False)
    if folder is None or not _has_weights(folder):
        return None
    return folder if any(folder.glob("*.safetensors")) else convert_weights(folder, name)


def convert_weights(folder: Path, name: str) -> Path:
    """A copy of a transformers folder, in RULER's cache, whose pickled weights have become ``.safetensors``.

    The weights are read by torch's restricted unpickler, which makes tensors and nothing else.

    Args:
        folder: Holds ``config.json`` and ``pytorch_model.bin``.
        name: Names the copy.

    Raises:
        FileFormatError: A file that holds anything but tensors.
    """
    target = cache_folder() / "language-models" / name.replace("/", "--") / folder.name
    if target.is_dir():
        return target
    tensors = _read_tensors(folder / _PICKLED)
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
            if not target.is_dir():  # else another process was faster, with the same content
                raise
    return target


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        state = read_torch(path)
    except FileFormatError:
        state = None
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise FileFormatError(
            f"{path} must hold tensors only; got a file that is broken or needs pickled code, which is "
            "not run. Load it where you trust it and save it again with save_pretrained."
        )
    # cloned: weights that are tied share their memory, which the format has no word for
    return {key: value.clone().contiguous() for key, value in state.items() if isinstance(value, torch.Tensor)}


def _fetch(name: str, *, local_files_only: bool) -> Path | None:
    hub = load_optional("huggingface_hub", "finding a model of the Hugging Face hub")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=_FILES, local_files_only=local_files_only))
    except (OSError, ValueError):  # not there, not reached, not allowed, or no name that the hub could have
        return None


def _has_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors")) or (folder / _PICKLED).is_file()


def _is_hub_in_reach() -> bool:
    """Asked once and briefly: the hub's own client tries again for half a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_PATIENCE_S).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except (OSError, ValueError):
        return False
    return True
