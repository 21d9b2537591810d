"""A cluster on this machine, of nodes that share no disk."""

import os
import shutil
import time
from pathlib import Path
from typing import Any


class Machines:
    """Ray nodes of one core that share no disk: each has its own cache, and none has the data."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder, self._cluster = folder, Cluster()
        # the head asks each node every second whether it lives: by default it notices a lost one after half a minute
        impatient = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
        self.nodes = [self.add(_system_config=impatient), self.add(), self.add()]
        self.environment = os.environ | {"RAY_ADDRESS": self._cluster.address, "RULER_CACHE": str(folder / "driver")}

    def add(self, **options: Any) -> Any:
        own = {"RULER_CACHE": str(self.folder / f"node-{time.monotonic_ns()}"), "RULER_DATA": "/nowhere"}
        return self._cluster.add_node(num_cpus=1, include_dashboard=False, env_vars=own, **options)

    def kill(self, node: Any) -> None:
        self.nodes.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def list_workers(self, node: Any) -> dict[int, str]:
        """Processes under way on a node -> the job that each does."""
        (raylet,) = node.all_processes["raylet"]
        return {pid: title for pid, title in list_children(raylet.process.pid).items() if " seed " in title}

    def forget_models(self) -> None:
        for cache in self.folder.glob("*/models"):
            shutil.rmtree(cache)

    def shut_down(self) -> None:
        self._cluster.shutdown()


def list_children(pid: int) -> dict[int, str]:
    """Children of a process -> their titles."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    titles = {}
    for child in path.read_text().split() if path.is_file() else []:
        line = Path(f"/proc/{child}/cmdline")
        titles[int(child)] = line.read_bytes().decode().strip("\0") if line.is_file() else ""
    return titles
