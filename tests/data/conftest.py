import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = os.environ.get("RULER_DATA")
    if not folder or not (Path(folder) / "tabular").is_dir():
        pytest.skip("RULER_DATA does not name a folder with tabular/*.csv.gz")
    return Path(folder)
