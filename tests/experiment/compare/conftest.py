"""A table of the user's own, small enough to be looked through."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame["age"] = rng.integers(20, 24, 120)
    frame["ward"] = rng.choice(["north", "south", "west"], 120)
    frame["person"] = np.repeat([f"p{i}" for i in range(40)], 3)
    frame["sick"] = np.where(frame["a"] + 0.5 * rng.normal(size=120) > 0, "yes", "no")
    path = tmp_path / "patients.csv"
    frame.to_csv(path, index=False)
    return path
