"""One thread for torch: on tiny models a pool of threads only waits for its slowest member."""

import pytest
import torch
from tests.embeddings.cases import PaperMLP


@pytest.fixture(autouse=True)
def one_thread():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return PaperMLP()


@pytest.fixture
def rows():
    return torch.randn(23, 5, generator=torch.Generator().manual_seed(1))
