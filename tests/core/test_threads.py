"""Blocks in threads: the answers of a plain loop."""

import os
import subprocess
import sys
import threading

import pytest

from ruler.core.threads import count_threads, run_in_threads


@pytest.mark.parametrize("n_threads", ["1", "3"])
def test_results_stand_in_the_order_of_their_items(n_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    before = threading.active_count()
    assert run_in_threads(lambda item: item**2, range(50)) == [item**2 for item in range(50)]
    assert run_in_threads(str, []) == []
    assert threading.active_count() == before


@pytest.mark.parametrize("n_threads", ["1", "3"])
def test_errors_reach_the_caller(n_threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    with pytest.raises(ZeroDivisionError):
        run_in_threads(lambda item: 1 / item, [2, 1, 0])


def test_an_interrupt_ends_all_threads():
    code = """
import signal
from ruler.core.threads import run_in_threads

signal.signal(signal.SIGALRM, signal.default_int_handler)
for microseconds in range(500, 60_500, 1_000):
    try:
        signal.setitimer(signal.ITIMER_REAL, microseconds / 1e6)
        run_in_threads(abs, range(20_000))
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
"""
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=True)


def test_the_environment_bounds_the_number_of_threads(monkeypatch):
    for value in ("3", " 3", "3,1"):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert count_threads() == 3
    for value in ("", "0", "some"):  # what names no number leaves the processors
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert 1 <= count_threads() <= 16
