"""torch.save files that hold tensors and plain values only; nothing that needs pickled code is opened."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ruler.core.errors import FileFormatError
from ruler.core.optional import load_optional
from ruler.core.types import Embeddings
from ruler.embeddings.formats.entries import appearing_whole, check_unfolded_size, pick_matrix


def load(path: Path) -> Embeddings:
    """A bare tensor, or a dict with ``values``, ``ids`` (a tensor or a list) and ``layer``; memory-mapped."""
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
    tensors = {name: value for name, value in entries.items() if isinstance(value, torch.Tensor)}
    values = tensors[pick_matrix({name: value.ndim for name, value in tensors.items()}, path)].detach()
    check_unfolded_size(values.numel() * values.element_size(), path)
    if values.dtype == torch.bfloat16:
        values = values.float()
    ids, layer = entries.get("ids"), entries.get("layer")
    return Embeddings(
        values.numpy(),
        None if ids is None else np.asarray(ids),
        layer if isinstance(layer, str) else None,
    )


def save(embeddings: Embeddings, path: Path) -> None:
    """Write a dict of ``values``, ``ids`` and ``layer``."""
    torch = load_optional("torch", "writing .pt")
    is_text = embeddings.ids.dtype.kind == "U"
    content: dict[str, Any] = {
        # copies, for torch warns of arrays that it must not write to, as memory maps are
        "values": torch.from_numpy(np.array(embeddings.values)),
        "ids": embeddings.ids.tolist() if is_text else torch.from_numpy(np.array(embeddings.ids)),
        "layer": embeddings.layer,
    }
    with appearing_whole(path) as stream:
        torch.save(content, stream)
