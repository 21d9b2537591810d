import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ruler.core.seeding import seed_everything, seeded  # noqa: E402


def test_a_seeded_block_draws_as_a_seeded_program_does() -> None:
    with seeded(9):
        inside = torch.rand(1).item(), np.random.rand()
    seed_everything(9)
    assert (torch.rand(1).item(), np.random.rand()) == inside


def fail_after_drawing() -> None:
    with seeded(9):
        torch.rand(5), np.random.rand(5)
        raise KeyError


def test_the_callers_streams_come_back_even_after_an_error() -> None:
    seed_everything(1)
    expected = torch.rand(2)[1].item(), np.random.rand(2)[1]
    seed_everything(1)
    torch.rand(1), np.random.rand()
    with pytest.raises(KeyError):
        fail_after_drawing()
    assert (torch.rand(1).item(), np.random.rand()) == expected
