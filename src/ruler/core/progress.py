"""A progress bar on long work, silent when nobody watches."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ruler.core.optional import load_optional

T = TypeVar("T")


def track(
    items: Iterable[T], label: str, *, n_items: int | None = None, is_shown: bool = True
) -> Iterator[T]:
    """Pass ``items`` on, one by one, with a bar on stderr if it is asked for and stderr is a terminal.

    Example:
        >>> list(track([1, 2], "counting", is_shown=False))
        [1, 2]
    """
    if not (is_shown and sys.stderr.isatty()):
        yield from items
        return
    rich_progress = load_optional("rich.progress", "showing a progress bar")
    console = load_optional("rich.console", "showing a progress bar").Console(stderr=True)
    yield from rich_progress.track(items, description=label, total=n_items, console=console, transient=True)
