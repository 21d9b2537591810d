"""Many records through one model into a folder of shards, which is resumed where it stopped and audited as it is."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import check_number
from ruler.core.errors import InputError
from ruler.core.files import check_writable, hash_file, write_atomically
from ruler.core.optional import load_optional
from ruler.core.progress import track
from ruler.core.readers.documents import read_json
from ruler.core.types import Embeddings
from ruler.embeddings.extract import embed
from ruler.embeddings.files import load_embeddings, save_embeddings

if TYPE_CHECKING:
    import torch

    from ruler.embeddings.heads import Pooling

NOTE = ".reading.json"
"""The file of a folder that says which reading its shards belong to; readers of shards pass over it."""


@dataclass(frozen=True, eq=False)
class Shard:
    """Records that are read together: always in the same batches, whoever reads them."""

    number: int
    data: Any


@dataclass(frozen=True)
class Reading:
    """How every shard is read.

    Args:
        key: Hash of model, records and how they are read.
        layer: As `embed`.
        pooling: As `embed`.
        batch_size: As `embed`.
        device: Where models run; None leaves them where they are.
        n_threads: Of torch on a CPU: sums run in another order with another number.
    """

    key: str
    layer: str | None
    pooling: "Pooling | None"
    batch_size: int
    device: str | None
    n_threads: int


Run = Callable[[Reading, Any, Iterable[Shard]], Iterator[tuple[int, Embeddings]]]
"""Has shards read by a model, or by the one in a folder: numbers and embeddings, in any order."""


def embed_shards(
    model: "torch.nn.Module | str | os.PathLike[str]",
    data: Any,
    folder: str | os.PathLike[str],
    *,
    layer: str | None = None,
    pooling: "Pooling | None" = None,
    batch_size: int = 256,
    shard_size: int = 8192,
    device: str | None = None,
    n_threads: int = 1,
    run: Run | None = None,
    progress: bool = False,
) -> Embeddings:
    """What does the model hold about each of very many records? `embed` into a folder of shards.

    Shards that are there are not read again: the same call resumes a reading that was stopped. Which records are
    read together depends on the arguments alone, so that a cluster (`ruler.embeddings.ray.reading_on_ray`) gives the
    bits of one machine with the same processors.

    Args:
        model: A torch module, or the folder of a transformers model, which every worker must see.
        data: A dict of arrays, a list of dicts, an array or a tuple of arrays, as `embed` takes them.
        folder: For the shards, such as ``unlearned/retain``: the folder ``unlearned`` can then be audited.
        layer: A single one, as `embed`.
        pooling: As `embed`.
        batch_size: Records per forward pass.
        shard_size: Records per shard.
        device: Where to run, e.g. ``"cuda"``; by default where the model is.
        n_threads: Of torch on a CPU.
        run: Who reads; by default this process.
        progress: Show how many shards are done.

    Returns:
        The embeddings of the folder, which are read from disk when asked for.

    Raises:
        InputError: Data that cannot be cut, or a folder that holds something else.

    Example:
        >>> import tempfile, torch
        >>> folder = Path(tempfile.mkdtemp()) / "retain"
        >>> rows = embed_shards(torch.nn.Linear(3, 2), torch.eye(3), folder, layer="", shard_size=2)
        >>> rows.shape, sorted(path.name for path in folder.glob("*.safetensors"))
        ((3, 2), ['part-00000.safetensors', 'part-00001.safetensors'])
    """
    check_number(shard_size, "shard_size", minimum=1, is_whole=True)
    if layer == "all" or not (layer is None or isinstance(layer, str)):
        raise InputError(f"layer must be a single one for shards; got {layer!r}. Read one folder per layer.")
    folder, opened = Path(folder), os.fspath(model) if isinstance(model, str | os.PathLike) else model
    blocks = iterate_blocks(_count(data), shard_size)
    how = [layer, pooling, batch_size, shard_size, device, n_threads]
    digest = hashlib.sha256(json.dumps(how).encode())
    for part in (*_list_parts(opened), *_list_parts(data)):
        digest.update(part)
    reading = Reading(digest.hexdigest(), layer, pooling, batch_size, device, n_threads)
    _claim(folder, reading.key, len(blocks))
    places = {number: folder / f"part-{number:05d}.safetensors" for number in range(len(blocks))}
    left = [number for number, place in places.items() if not place.exists()]
    shards = (Shard(number, _cut(data, *blocks[number])) for number in left)
    found = (run or read_here)(reading, opened, shards)
    for number, rows in track(found, "reading shards", n_items=len(left), is_shown=progress):
        save_embeddings(rows, places[number])
    return load_embeddings(folder)


def read_here(reading: Reading, model: Any, shards: Iterable[Shard]) -> Iterator[tuple[int, Embeddings]]:
    """Read shards in this process."""
    loaded = open_model(model)
    for shard in shards:
        yield shard.number, read_shard(reading, loaded, shard)


def open_model(model: Any) -> Any:
    """The module itself, or the one in a transformers folder."""
    if not isinstance(model, str):
        return model
    from ruler.embeddings.bundle.checkpoints import load_transformer

    return load_transformer(Path(model), "given")


def read_shard(reading: Reading, model: Any, shard: Shard) -> Embeddings:
    """The embeddings of one shard, with losses where known."""
    torch = load_optional("torch", "embedding a model")
    n_before = torch.get_num_threads()
    torch.set_num_threads(reading.n_threads)
    try:
        asked: Any = {"layer": reading.layer, "pooling": reading.pooling, "batch_size": reading.batch_size}
        found: Embeddings = embed(model, shard.data, **asked, device=reading.device)
        return found
    finally:
        torch.set_num_threads(n_before)


def _claim(folder: Path, key: str, n_shards: int) -> None:
    """Note in the folder whose shards it holds, or check that they are these."""
    folder.mkdir(parents=True, exist_ok=True)
    check_writable(folder)
    note = folder / NOTE
    known = read_json(note).get("key") if note.is_file() else None
    if known is None and not any(folder.iterdir()):
        write_atomically(note, json.dumps({"key": key, "n_shards": n_shards}))
    elif known != key:
        found = "shards of another model, other records or another way to read them" if known else "other files"
        raise InputError(f"folder must be empty or hold this reading, begun before; got {found} in {folder}. Empty it.")


def _count(data: Any) -> int:
    """Records of data that can be cut."""
    columns = list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, tuple) else [data]
    if not columns or not all(hasattr(one, "__len__") and hasattr(one, "__getitem__") for one in columns):
        raise InputError(
            "data must be a dict of arrays, a list of dicts, an array or a tuple of arrays; got "
            f"{type(data).__name__}. Encode the records first."
        )
    lengths = {len(one) for one in columns}
    if len(lengths) > 1 or 0 in lengths:
        raise InputError(f"data must hold records, as many in every part; got {sorted(lengths)}.")
    return lengths.pop()


def _cut(data: Any, start: int, stop: int) -> Any:
    if isinstance(data, Mapping):
        return {key: value[start:stop] for key, value in data.items()}
    return tuple(one[start:stop] for one in data) if isinstance(data, tuple) else data[start:stop]


def _list_parts(value: Any) -> Iterator[bytes]:
    """What identifies a model or records, as bytes; tensors with their shape and type."""
    if isinstance(value, str) and Path(value).is_dir():
        for file in sorted(Path(value).glob("*.safetensors")) + sorted(Path(value).glob("*.json")):
            yield f"{file.name} {hash_file(file)}".encode()
    elif hasattr(value, "state_dict"):
        yield type(value).__qualname__.encode()
        yield from _list_parts(dict(sorted(value.state_dict().items())))
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield str(key).encode()
            yield from _list_parts(one)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for one in value:
            yield from _list_parts(one)
    elif hasattr(value, "detach"):
        torch = load_optional("torch", "embedding a model")
        plain = value.detach().cpu().contiguous()
        yield f"{tuple(plain.shape)} {plain.dtype}".encode()
        yield plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    elif hasattr(value, "__array__"):
        rows = np.ascontiguousarray(value)
        yield f"{rows.shape} {rows.dtype}".encode()
        yield rows.tobytes()
    else:
        yield repr(value).encode()
