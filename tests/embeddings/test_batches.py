"""Batches on their way to a device."""

import pytest
import torch
from torch import Tensor

from ruler.embeddings.batches import Batch


def test_only_rows_without_gaps_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pinned copy keeps the gaps: a few rows of a table that is stored by columns would take as much as all of it."""
    pinned: list[Tensor] = []

    def pin(value: Tensor) -> Tensor:
        pinned.append(value)
        return value

    monkeypatch.setattr(Tensor, "pin_memory", pin)
    monkeypatch.setattr(Tensor, "to", lambda value, *_, **__: value)  # as there may be no GPU
    table = torch.rand(6, 1000)
    Batch({0: table[:, :3], 1: table.T[:6], 2: table[2:4]}).placed(torch.device("cuda"), None)
    assert len(pinned) == 1
    assert torch.equal(pinned[0], table[2:4])
