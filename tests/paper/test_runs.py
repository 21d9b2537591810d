import pandas as pd
import pytest

from ruler.paper.runs import state_seconds


@pytest.mark.parametrize(
    ("ends", "elapsed_s", "wall"),
    [
        ((10, 20), (10, 10), "20"),  # one after the other
        ((10, 12), (10, 8), "12"),  # side by side
        ((10, 8), (10, 2), "10"),  # one within the other
        ((10, 1000), (10, 30), "40"),  # stopped, and resumed much later
        ((50, 10, 1000), (50, 10, 5), "55"),  # in no order
    ],
)
def test_wall_seconds_are_those_in_which_a_cell_ran(ends, elapsed_s, wall):
    start = pd.Timestamp("2026-01-01T00:00:00Z")
    finished = [(start + pd.Timedelta(seconds=end)).isoformat() for end in ends]
    runs = pd.DataFrame({"elapsed_s": elapsed_s, "finished_at": finished})
    assert state_seconds(runs) == (f"{sum(elapsed_s)}", wall)
