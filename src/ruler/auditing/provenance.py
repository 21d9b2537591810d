"""What was audited, with which software, when: enough to tell whether two reports speak of the same evidence."""

import hashlib
import platform
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from ruler.auditing.evidence import Evidence
from ruler.core.arithmetic import iterate_blocks
from ruler.core.checks import block_rows_for
from ruler.core.version import __version__


def describe_provenance(evidence: Evidence) -> dict[str, Any]:
    """Versions, time, layers, and shape and hash of every array at the main layer. The rows themselves stay out."""
    return {
        "ruler": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "layers": [layer for layer in evidence.layers if layer],
        "n_oracles": len(evidence.oracles),
        "n_unmatched": evidence.n_unmatched,
        "arrays": {
            name: {
                side: {"shape": list(rows.shape), "dtype": str(rows.dtype), "sha256": hash_rows(rows)}
                for side, rows in model.rows.items()
            }
            for name, model in evidence.models.items()
        },
    }


def hash_rows(rows: npt.NDArray[Any]) -> str:
    """SHA-256 of shape and values as little-endian float64, so that layout and byte order do not matter.

    Example:
        >>> hash_rows(np.eye(2)) == hash_rows(np.asfortranarray(np.eye(2, dtype=np.float32)))
        True
    """
    digest = hashlib.sha256(f"{rows.shape}".encode())
    for start, stop in iterate_blocks(len(rows), block_rows_for(rows.shape[1])):
        digest.update(np.ascontiguousarray(rows[start:stop], dtype="<f8").data)
    return digest.hexdigest()
