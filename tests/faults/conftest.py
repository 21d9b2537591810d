from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def model(tmp_path: Path, random: np.random.Generator) -> Path:
    """A folder of embeddings."""
    folder = tmp_path / "model"
    folder.mkdir()
    for side, n_rows in (("forget", 60), ("retain", 200), ("held_out", 100)):
        np.save(folder / f"{side}.npy", random.normal(size=(n_rows, 8)))
    return folder
