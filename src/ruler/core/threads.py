"""Blocks of rows in several threads: for NumPy, which lets other threads run while it works on one."""

import os
from collections import deque
from collections.abc import Callable, Iterable
from threading import Thread
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 16
_KEPT_BYTES = 1 << 23


def run_in_threads(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[call(item) for item in items]``, with as many items at once as there are processors to use.

    Example:
        >>> run_in_threads(abs, [-1, 2, -3])
        [1, 2, 3]
    """
    # glibc keeps blocks for the next step up to the largest size that was freed; larger ones are zeroed pages each time
    np.empty(_KEPT_BYTES, np.uint8)
    listed = list(items)
    n_threads = min(len(listed), count_threads())
    if n_threads < 2:
        return [call(item) for item in listed]
    waiting = deque(enumerate(listed))
    results: dict[int, Result] = {}
    failed: dict[int, BaseException] = {}

    def work() -> None:
        while True:
            try:
                number, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[number] = call(item)
            except BaseException as error:
                failed[number] = error
                waiting.clear()

    # no pool: an interrupt while it takes in an item may leave its lock held, and then no thread of it ever ends
    threads = [Thread(target=work, daemon=True) for _ in range(n_threads)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        waiting.clear()
    if failed:
        raise failed[min(failed)]  # of the first item: items are begun in their order
    return [results[number] for number in range(len(listed))]


def count_threads() -> int:
    """Processors that this process may use: at most ``OMP_NUM_THREADS``, where that is set, and at most 16."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # a list goes on with inner levels
    if wanted.isdecimal() and int(wanted) > 0:
        return min(_MOST_THREADS, int(wanted))
    n_processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_THREADS, n_processors)
