"""What an engine is asked, and what it must answer; `search.py` holds the table of engines."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ruler.core.checks import Shape, as_matrix, check_same_width, is_on_cuda
from ruler.core.errors import InputError
from ruler.core.types import Neighbors


@dataclass(frozen=True, eq=False)
class Request:
    """A search as the caller asked for it.

    Args:
        queries: Rows to look up: any array on any device.
        base: Rows to search; the same object for a set searched in itself.
        k: Neighbours per query.
        exclude_self: Base row i is no neighbour of query i.
        device: As the caller named it; None goes where the data is.
        names: What the caller calls queries and base, for messages.
    """

    queries: Any
    base: Any
    k: int = 1
    exclude_self: bool = False
    device: str | None = None
    names: tuple[str, str] = ("queries", "base")

    @property
    def is_self(self) -> bool:
        """Whether a set is searched in itself, so that each product serves both of its rows."""
        return self.queries is self.base

    @property
    def wants_cuda(self) -> bool:
        """Whether the search is to be done on a CUDA device: the one that is named, or that holds the data."""
        if self.device is not None:
            return self.device.partition(":")[0] == "cuda"
        return is_on_cuda(self.queries) or is_on_cuda(self.base)

    def check_shapes(self, queries: Shape, base: Shape) -> None:
        """Check that the shapes fit each other and hold k neighbours per query.

        Raises:
            InputError: They do not.
        """
        check_same_width(queries, base, self.names)
        query_name, base_name = self.names
        if self.exclude_self and queries[0] != base[0]:
            raise InputError(
                f"{query_name} must be the rows of {base_name} when exclude_self is set; got {queries[0]} and "
                f"{base[0]} rows. Pass the same array twice."
            )
        n_available = base[0] - bool(self.exclude_self)
        if not isinstance(self.k, int | np.integer) or not 1 <= self.k <= n_available:
            raise InputError(
                f"k must be from 1 to the {n_available} rows of {base_name} that can be neighbours; got {self.k}. "
                f"Ask for fewer neighbours or give more rows."
            )

    def read_matrices(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Queries and base as matrices that fit each other, one object where the caller gave one."""
        base = as_matrix(self.base, self.names[1])
        queries = base if self.is_self else as_matrix(self.queries, self.names[0])
        self.check_shapes(queries.shape, base.shape)
        return queries, base


class Engine(Protocol):
    """One way to search. Every engine gives the same bits; `ruler.testing.engines` tells whether one does."""

    def is_usable_for(self, request: Request) -> bool:
        """Whether this engine can answer the request, by its device and kind of arrays."""
        ...

    def search(self, request: Request) -> Neighbors:
        """The k best base rows of each query: similarity descending, ties by smallest index.

        Raises:
            InputError: As `find_neighbors`.
        """
        ...
