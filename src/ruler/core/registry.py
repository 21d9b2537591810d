"""One registry class for everything that users name: datasets, methods, studies."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from ruler.core.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T], Mapping[str, T]):
    """A read-only table of names that answers a wrong name with the nearest right one.

    Example:
        >>> methods = Registry("method", {"scrub": 1})
        >>> methods["scrub"]
        1
        >>> methods["scrab"]
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: method must be one of scrub; got 'scrab'. Did you mean 'scrub'?
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name in self._entries:
            return self._entries[name]
        known = sorted(self._entries)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownNameError(f"{self.kind} must be one of {', '.join(known)}; got {name!r}.{hint}")

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
