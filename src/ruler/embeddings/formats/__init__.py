"""The table of embedding files: by ending, how one is read and written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ruler.core.types import Embeddings
from ruler.embeddings.formats import npy, npz, parquet, pt, safetensors
from ruler.embeddings.formats.entries import Opened


@dataclass(frozen=True)
class Format:
    """How one kind of file is read and written; ``open_rows`` where it can be one shard of many.

    Readers take the file and the name of what is to serve as strata, or None.
    """

    load: Callable[[Path, str | None], Opened]
    save: Callable[[Embeddings, Path], None]
    open_rows: Callable[[Path, str | None], Opened] | None = None


FORMATS = {
    ".npy": Format(npy.load, npy.save, npy.load),
    ".npz": Format(npz.load, npz.save),
    ".parquet": Format(parquet.load, parquet.save, parquet.open_rows),
    ".safetensors": Format(safetensors.load, safetensors.save, safetensors.open_rows),
    ".pt": Format(pt.load, pt.save),
}
