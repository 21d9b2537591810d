"""One thread for torch: on tiny models a pool of threads only waits for its slowest member."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)
