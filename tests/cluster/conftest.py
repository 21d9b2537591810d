"""One cluster for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.machines import Machines


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    pytest.importorskip("ray", reason="needs ray: pip install 'ruler-audit[cluster]'")
    if not Path("/proc/self/task").is_dir():
        pytest.skip("finding workers to kill needs /proc")
    machines = Machines(tmp_path_factory.mktemp("machines"))
    yield machines
    machines.shut_down()
