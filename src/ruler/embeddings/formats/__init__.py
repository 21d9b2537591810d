"""The table of embedding files: by ending, how one is read and written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ruler.core.types import Embeddings
from ruler.embeddings.formats import npy, npz, parquet, pt, safetensors


@dataclass(frozen=True)
class Format:
    """How one kind of file is read and written."""

    load: Callable[[Path], Embeddings]
    save: Callable[[Embeddings, Path], None]


FORMATS = {
    ".npy": Format(npy.load, npy.save),
    ".npz": Format(npz.load, npz.save),
    ".parquet": Format(parquet.load, parquet.save),
    ".safetensors": Format(safetensors.load, safetensors.save),
    ".pt": Format(pt.load, pt.save),
}
