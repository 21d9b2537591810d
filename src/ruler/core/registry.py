"""One registry class for everything that users name: datasets, methods, metrics, studies."""

import difflib
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from ruler.core.errors import InputError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T], Mapping[str, T]):
    """A table of names that answers a wrong name with the nearest right one.

    Other packages add to it by an entry point of its group (found when the table is first read), or by `register`.

    Args:
        kind: What the entries are, for messages.
        entries: Our own, by name.
        group: Entry-point group of other packages' entries, such as "ruler.methods"; None for a closed table.
        type: Class that entries of other packages must have.

    Example:
        >>> methods = Registry("method", {"scrub": 1})
        >>> methods["scrub"]
        1
        >>> methods["scrab"]
        Traceback (most recent call last):
        ruler.core.errors.UnknownNameError: method must be one of scrub; got 'scrab'. Did you mean 'scrub'?
    """

    def __init__(
        self, kind: str, entries: Mapping[str, T], *, group: str | None = None, type: type | None = None
    ) -> None:
        self.kind = kind
        self._entries = dict(entries)
        self._own = frozenset(self._entries)
        self._group = group
        self._type = type

    def register(self, name: str, entry: T) -> T:
        """Add an entry of the user's own; a name that is taken by another entry is an error."""
        if name in self._own or self._entries.get(name, entry) is not entry:
            raise InputError(f"{self.kind} names must be unique; got {name!r} a second time. Choose another name.")
        if self._type is not None and not isinstance(entry, self._type):
            raise InputError(f"{self.kind} {name!r} must be a {self._type.__name__}; got a {entry.__class__.__name__}.")
        self._entries[name] = entry
        return entry

    def is_own(self, name: str) -> bool:
        """Whether the entry came with this package."""
        return name in self._own

    def _load(self) -> dict[str, T]:
        """All entries, those of other packages included; these are looked for once."""
        if self._group is not None:
            group, self._group = self._group, None
            for point in entry_points(group=group):
                try:
                    self.register(point.name, point.load())
                except Exception as error:
                    owner = point.dist.name if point.dist else point.value
                    warnings.warn(f"{self.kind} {point.name!r} of {owner} is left out: {error}", stacklevel=3)
        return self._entries

    def __getitem__(self, name: str) -> T:
        entries = self._entries if name in self._own else self._load()
        if name in entries:
            return entries[name]
        known = sorted(entries)
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UnknownNameError(f"{self.kind} must be one of {', '.join(known)}; got {name!r}.{hint}")

    def get(self, name: str, default: T | None = None) -> T | None:  # type: ignore[override]
        """The entry of that name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())
