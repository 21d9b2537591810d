"""How far long work is: rich's bar on a terminal after two seconds, a plain line every half minute elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0
SECONDS_PER_LINE = 30.0  # rich prints nothing off a terminal before the end


class Advance(Protocol):
    """Takes the amount of work just done, and words that stand for its title from then on."""

    def __call__(self, amount: float, words: str = "", /) -> None: ...  # noqa: D102


@contextmanager
def show_progress(title: str, total: float, *, is_shown: bool = True) -> Iterator[Advance]:
    """Yield a function that takes the amount just done; if it is asked for, show on stderr how far long work is.

    Example:
        >>> with show_progress("searching", total=3) as advance:
        ...     for _ in range(3):
        ...         advance(1)
    """
    is_terminal = is_shown and sys.stderr.isatty()
    started_s = time.monotonic()
    next_s = started_s + (PATIENCE_S if is_terminal else SECONDS_PER_LINE) if is_shown else float("inf")
    done = 0.0
    bar: Any = None

    def advance(amount: float, words: str = "", /) -> None:
        nonlocal title, done, next_s, bar
        title = words or title
        done += amount
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, description=title)
        elif time.monotonic() >= next_s and is_terminal:
            next_s = float("inf")
            bar = _open_bar(title, total, done)
        elif (now_s := time.monotonic()) >= next_s and 0 < done < total:
            next_s = now_s + SECONDS_PER_LINE
            minutes = (now_s - started_s) * (total - done) / done / 60
            print(f"{title}: {done / total:.0%}, about {minutes:,.1f} min left", file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def track(items: Iterable[T], label: str, *, n_items: int, is_shown: bool = True) -> Iterator[T]:
    """Pass ``items`` on, one by one, showing progress if it is asked for.

    Example:
        >>> list(track([1, 2], "counting", n_items=2, is_shown=False))
        [1, 2]
    """
    with show_progress(label, n_items, is_shown=is_shown) as advance:
        for item in items:
            yield item
            advance(1)


def _open_bar(title: str, total: float, done: float) -> Any:
    try:
        from rich import progress as parts
        from rich.console import Console
    except ModuleNotFoundError:  # a bar is a courtesy: without rich the work goes on in silence
        return None
    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        parts.TextColumn("{task.percentage:.0f}%"),
        parts.TimeRemainingColumn(),
    )
    bar = parts.Progress(*columns, console=Console(stderr=True), transient=True)
    bar.add_task(title, total=total, completed=int(done))
    bar.start()
    return bar
