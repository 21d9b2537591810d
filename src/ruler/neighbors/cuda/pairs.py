"""The k best pairs a query on a torch device, with similarities that are equal to the CPU's to the last bit."""

from dataclasses import dataclass
from typing import Any

from ruler.core.arithmetic import iterate_blocks, similarity_of_unit_rows
from ruler.neighbors.engines import SUB_BLOCK

_CHUNK_BYTES = 1 << 29


def rows_for(width: int) -> int:
    """How many rows of this width make a chunk of 512 MB in float64."""
    return max(SUB_BLOCK, _CHUNK_BYTES // (8 * width))


@dataclass(frozen=True)
class Pairs:
    """Queries and base rows with their exact similarity: k a query, ordered by query, best first."""

    rows: Any
    columns: Any
    values: Any


class BestPairs:
    """The best pairs so far; k empty places a query at first."""

    def __init__(self, torch: Any, queries: Any, base: Any, k: int) -> None:
        self._torch, self._queries, self._base, self._k = torch, queries, base, k
        rows = torch.arange(len(queries), device=base.matrix.device).repeat_interleave(k)
        nobody = torch.full_like(rows, torch.iinfo(torch.int64).max)
        self.pairs = Pairs(rows, nobody, torch.full_like(rows, -torch.inf, dtype=torch.float64))

    def merge(self, rows: Any, columns: Any) -> None:
        """Take in new pairs and keep the k best a query, ties by smallest base row."""
        torch, known = self._torch, self.pairs
        spans = iterate_blocks(len(rows), rows_for(self._base.width) // 4)
        values = [
            similarity_of_unit_rows(self._queries.take(rows[a:b]), self._base.take(columns[a:b])) for a, b in spans
        ]
        rows, columns = torch.cat([known.rows, rows]), torch.cat([known.columns, columns])
        similarity = torch.cat([known.values, *values])
        order = torch.argsort(columns, stable=True)
        for key in (-similarity, rows):  # stable, so the last key counts most
            order = order[torch.argsort(key[order], stable=True)]
        place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows[order], rows[order])
        best = order[place < self._k]
        self.pairs = Pairs(rows[best], columns[best], similarity[best])

    def kth_values(self) -> Any:
        """The lowest of the k similarities of each query, -inf where fewer are known."""
        return self.pairs.values.view(-1, self._k)[:, -1]
