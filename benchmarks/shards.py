"""An audit of more rows than one would load: how long, and how much memory."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measure import read_peak_mb, run_apart, save_each
from ruler.auditing.audit import audit
from ruler.auditing.settings import AuditSettings
from ruler.core.types import FloatArray
from ruler.embeddings import load_embeddings

N_ROWS, WIDTH, N_SHARDS = 3_000_000, 128, 24
N_REFERENCE = 20_000
_N_SIDE = 10_000
_N_IDENTITIES, _N_CLASSES = 4000, 50


@dataclass(frozen=True)
class ShardsTiming:
    """One audit of shards.

    Args:
        n_rows: Retain records.
        width: Of an embedding.
        n_side: Forget records, and as many held-out ones.
        n_reference: Retain records that M4 ranks among; None for all.
        elapsed_s: Seconds that it took.
        peak_mb: Most memory that the process held.
    """

    n_rows: int
    width: int
    n_side: int
    n_reference: int | None
    elapsed_s: float
    peak_mb: float


def time_shards(
    n_rows: int = N_ROWS, width: int = WIDTH, n_reference: int | None = N_REFERENCE, n_side: int = _N_SIDE
) -> ShardsTiming:
    """Write shards to the temporary folder, 4 bytes per number, and audit them in a process of its own.

    Args:
        n_rows: Retain records.
        width: Of an embedding.
        n_reference: As in `AuditSettings`.
        n_side: Forget records, and as many held-out ones.
    """
    with TemporaryDirectory() as folder:
        rows = Rows(width)
        (Path(folder) / "retain").mkdir()
        for i, n in enumerate(len(part) for part in np.array_split(np.empty(n_rows, np.bool_), N_SHARDS)):
            np.save(Path(folder) / "retain" / f"rows-{i:03}.npy", rows.draw(n))
        for side in ("forget", "held_out"):
            np.save(Path(folder) / f"{side}.npy", rows.draw(n_side))
        elapsed_s, peak_mb = run_apart(_audit, folder, n_reference)
    return ShardsTiming(n_rows, width, n_side, n_reference, elapsed_s, peak_mb)


def _audit(folder: str, n_reference: int | None) -> tuple[float, float]:
    sides = tuple(load_embeddings(Path(folder) / name) for name in ("forget.npy", "retain", "held_out.npy"))
    settings = AuditSettings(n_reference=n_reference)
    started_s = time.perf_counter()
    audit(sides, settings=settings)
    return time.perf_counter() - started_s, read_peak_mb()


class Rows:
    """Rows as an embedding of faces or goods has them: identities within classes, and a few records of nobody."""

    def __init__(self, width: int) -> None:
        self._rng = np.random.default_rng(0)
        self._spectrum = 1 / np.sqrt(1 + np.arange(width) / 8)  # embeddings fill few directions well
        classes = self._draw_noise(_N_CLASSES)
        chosen = classes[self._rng.integers(0, _N_CLASSES, _N_IDENTITIES)]
        self._identities = _scale_to_unit(chosen + 0.9 * self._draw_noise(_N_IDENTITIES))

    def _draw_noise(self, n: int) -> FloatArray:
        noise: FloatArray = self._rng.normal(size=(n, len(self._spectrum))) * self._spectrum
        return noise

    def draw(self, n: int) -> FloatArray:
        """``n`` more, at cosines of 0.93 to 0.74 to the centre of their identity."""
        spread = self._rng.uniform(0.4, 0.9, size=(n, 1))
        rows = self._identities[self._rng.integers(0, _N_IDENTITIES, n)] + spread * _scale_to_unit(self._draw_noise(n))
        stray = self._rng.random(n) < 0.02
        rows[stray] = self._draw_noise(int(stray.sum()))
        length = self._rng.uniform(5, 15, size=(n, 1))
        return (_scale_to_unit(rows) * length).astype(np.float32)


def _scale_to_unit(rows: FloatArray) -> FloatArray:
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def main() -> None:
    """`python -m benchmarks shards --json FILE`: an audit of three million rows in shards."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--json", type=Path, required=True, help="write all numbers to this file")
    parser.add_argument("--rows", type=int, default=N_ROWS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--exact", action="store_true", help="also with M4 among all retain records: an hour or two")
    chosen = parser.parse_args()
    asked = (N_REFERENCE, None) if chosen.exact else (N_REFERENCE,)
    save_each((time_shards(chosen.rows, chosen.width, one) for one in asked), chosen.json, "shards")
