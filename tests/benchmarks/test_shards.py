from benchmarks.shards import time_shards


def test_an_audit_of_shards_is_timed():
    timing = time_shards(3000, 8, n_reference=500, n_side=100)
    assert (timing.n_rows, timing.width, timing.n_side, timing.n_reference) == (3000, 8, 100, 500)
    assert timing.elapsed_s > 0
    assert timing.peak_mb > 50  # a process with NumPy in it holds more than that
