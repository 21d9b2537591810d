"""A progress bar for work over two seconds; a plain line every half minute when stderr is not a terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE_S = 2.0
SECONDS_PER_LINE = 30.0


@contextmanager
def show_progress(title: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the amount just done; a bar appears once two seconds have passed.

    Example:
        >>> with show_progress("searching", total=3) as advance:
        ...     for _ in range(3):
        ...         advance(1)
    """
    if not sys.stderr.isatty():
        yield _make_line_writer(title, total)
        return
    bar = _LateBar(title, total)
    try:
        yield bar.advance
    finally:
        bar.close()


def track(items: Iterable[T], label: str, *, n_items: int, is_shown: bool = True) -> Iterator[T]:
    """Pass ``items`` on, one by one, with a bar if it is asked for.

    Example:
        >>> list(track([1, 2], "counting", n_items=2, is_shown=False))
        [1, 2]
    """
    if not is_shown:
        yield from items
        return
    with show_progress(label, n_items) as advance:
        for item in items:
            yield item
            advance(1)


def _make_line_writer(title: str, total: float) -> Callable[[float], None]:
    """What is done and how long the rest should take, as a line of text every half minute."""
    started_s = told_s = time.monotonic()
    done = 0.0

    def advance(amount: float) -> None:
        nonlocal done, told_s
        done += amount
        now_s = time.monotonic()
        if now_s - told_s >= SECONDS_PER_LINE and 0 < done < total:
            told_s = now_s
            minutes = (now_s - started_s) * (total - done) / done / 60
            print(f"{title}: {done / total:.0%}, about {minutes:,.1f} min left", file=sys.stderr, flush=True)

    return advance


class _LateBar:
    """A rich bar that opens itself when the work turns out to be long."""

    def __init__(self, title: str, total: float) -> None:
        self._title, self._total, self._done = title, total, 0.0
        self._open_at_s = time.monotonic() + PATIENCE_S
        self._progress: Any = None

    def advance(self, amount: float) -> None:
        self._done += amount
        if self._progress is None and time.monotonic() > self._open_at_s:
            self._open()
        if self._progress is not None:
            self._progress.update(self._task, completed=self._done)

    def _open(self) -> None:
        try:
            from rich import progress as parts
            from rich.console import Console
        except ModuleNotFoundError:  # a bar is a courtesy: without rich the work goes on in silence
            self._open_at_s = float("inf")
            return
        text = (
            parts.TextColumn("{task.description}"),
            parts.BarColumn(),
            parts.TextColumn("{task.percentage:.0f}%"),
        )
        self._progress = parts.Progress(
            *text, parts.TimeRemainingColumn(), console=Console(stderr=True), transient=True
        )
        self._progress.start()
        self._task = self._progress.add_task(self._title, total=self._total)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
