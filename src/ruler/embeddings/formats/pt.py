"""torch.save files that hold tensors and plain values only; nothing that needs pickled code is opened."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import (
    Opened,
    appearing_whole,
    beside_of,
    check_unfolded_size,
    find_beside,
    pick_matrix,
)


def load(path: Path, strata: str | None = None) -> Opened:
    """A bare tensor, or a dict with ``values``, ``layer`` and what stands beside the rows; memory-mapped.

    What stands beside the rows may be tensors or lists.
    """
    torch = load_optional("torch", "reading .pt")
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        with zipfile.ZipFile(path) as archive:
            check_unfolded_size(sum(info.file_size for info in archive.infolist()), path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except pickle.UnpicklingError:
        raise FileFormatError(
            f"{path} must be a .pt file of tensors only; got one that is broken or needs pickled code, which is not "
            "run. Save the tensor itself, with torch.save(tensor, path)."
        ) from None
    entries = content if isinstance(content, dict) else {"values": content}
    names = find_beside([name for name in entries if isinstance(name, str)], path, strata)
    tensors = {name: value for name, value in entries.items() if isinstance(value, torch.Tensor)}
    matrix = pick_matrix({name: value.ndim for name, value in tensors.items()}, path, names.values())
    values = _as_array(tensors[matrix], path)
    beside = {field: _as_array(entries[name], path) for field, name in names.items()}
    layer = entries.get("layer")
    return Opened(values, beside, layer if isinstance(layer, str) else None)


def _as_array(value: Any, path: Path) -> npt.NDArray[Any]:
    if not hasattr(value, "detach"):
        return np.asarray(value)
    check_unfolded_size(value.numel() * value.element_size(), path)
    value = value.detach()
    return np.asarray((value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy())


def save(embeddings: Embeddings, path: Path) -> None:
    """Write a dict of ``values``, ``layer`` and what stands beside the rows, text as lists."""
    torch = load_optional("torch", "writing .pt")
    content: dict[str, Any] = {
        # copies, for torch warns of arrays that it must not write to, as memory maps are
        "values": torch.from_numpy(np.array(embeddings.values)),
        "layer": embeddings.layer,
    }
    for name, beside in beside_of(embeddings).items():
        content[name] = beside.tolist() if beside.dtype.kind == "U" else torch.from_numpy(np.array(beside))
    with appearing_whole(path) as stream:
        torch.save(content, stream)
