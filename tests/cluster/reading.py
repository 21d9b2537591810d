"""``python -m tests.cluster.reading FOLDER``: records through a slow model of this script, on a cluster."""

import sys
import time
from typing import Any

import torch

from ruler.core.cluster import ClusterSettings, connect, list_needs
from ruler.embeddings.ray import reading_on_ray
from ruler.embeddings.shards import embed_shards

SHARD_SIZE = 20
_DRAW = torch.Generator().manual_seed(0)
RECORDS = torch.randn(240, 9, generator=_DRAW), torch.randint(4, (240,), generator=_DRAW)


class SlowModel(torch.nn.Sequential):
    """A classifier that takes its time."""

    pause_s = 0.0

    def forward(self, input: torch.Tensor) -> Any:
        time.sleep(self.pause_s)
        return super().forward(input)


def make_model() -> SlowModel:
    torch.manual_seed(0)
    return SlowModel(torch.nn.Linear(9, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


if __name__ == "__main__":
    model = make_model()
    model.pause_s = 0.4
    with connect(1) as ray:
        run = reading_on_ray(ray, list_needs(ClusterSettings(), "cpu"))
        embed_shards(model, RECORDS, sys.argv[1], shard_size=SHARD_SIZE, run=run)
