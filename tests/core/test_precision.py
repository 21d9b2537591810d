from collections.abc import Iterator

import numpy as np
import pytest

from ruler.core.precision import fixed_algorithms, full_precision, repeatable_only, tensor_cores
from ruler.neighbors import find_neighbors

torch = pytest.importorskip("torch")
ROWS = np.random.default_rng(0).normal(size=(300, 8))
NEEDS_NEW = pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has one precision for all backends"
)


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    yield
    for backend in (torch.backends, torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        if hasattr(backend, "fp32_precision"):
            backend.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def test_the_callers_precision_is_put_back() -> None:
    torch.set_float32_matmul_precision("medium")
    with full_precision(torch):
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "medium"


def test_no_search_leaves_while_another_one_stays() -> None:
    torch.set_float32_matmul_precision("medium")
    first, second = full_precision(torch), full_precision(torch)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "highest"
    second.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "medium"


def test_tensor_cores_are_for_a_search_that_is_alone() -> None:
    other = full_precision(torch)
    with full_precision(torch):
        with tensor_cores(torch):
            assert torch.get_float32_matmul_precision() == "high"
            other.__enter__()
            assert torch.get_float32_matmul_precision() == "highest"
        with tensor_cores(torch):
            assert torch.get_float32_matmul_precision() == "highest"
        other.__exit__(None, None, None)
        with tensor_cores(torch):
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "highest"


def test_tensor_cores_outside_of_a_search_change_nothing() -> None:
    torch.set_float32_matmul_precision("medium")
    with tensor_cores(torch):
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == "medium"


@NEEDS_NEW
@pytest.mark.parametrize("name", ["cuda.matmul", "mkldnn.matmul", ""])
def test_a_caller_with_the_newer_interface_gets_exact_neighbours_and_keeps_the_setting(name: str) -> None:
    expected = find_neighbors(ROWS, ROWS, exclude_self=True)
    backend = torch.backends
    for part in name.split(".") if name else ():
        backend = getattr(backend, part)
    backend.fp32_precision = "tf32"
    with full_precision(torch):
        assert torch.backends.cuda.matmul.fp32_precision == torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        with tensor_cores(torch):
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        found = find_neighbors(ROWS, ROWS, exclude_self=True)
    assert backend.fp32_precision == "tf32"
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_array_equal(found.similarity, expected.similarity)


def test_convolutions_are_as_precise_as_products() -> None:
    with full_precision(torch):
        assert not torch.backends.cudnn.allow_tf32
        with full_precision(torch):
            pass
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32


@NEEDS_NEW
@pytest.mark.parametrize("name", ["", "conv", "rnn"])
def test_a_caller_with_the_newer_interface_keeps_the_precision_of_convolutions(name: str) -> None:
    cudnn = torch.backends.cudnn
    backend = getattr(cudnn, name) if name else torch.backends
    before = [kind.fp32_precision for kind in (cudnn.conv, cudnn.rnn)]
    backend.fp32_precision = "ieee" if name else "tf32"
    chosen = [kind.fp32_precision for kind in (cudnn.conv, cudnn.rnn)]
    with full_precision(torch):
        assert cudnn.conv.fp32_precision == cudnn.rnn.fp32_precision == "ieee"
    assert [kind.fp32_precision for kind in (cudnn.conv, cudnn.rnn)] == chosen
    for kind, word in zip((cudnn.conv, cudnn.rnn), before, strict=True):
        kind.fp32_precision = word


@pytest.mark.parametrize("is_raced", [True, False])
def test_the_callers_choice_of_algorithms_is_put_back(is_raced: bool) -> None:
    torch.backends.cudnn.benchmark = is_raced
    try:
        with fixed_algorithms(torch), fixed_algorithms(torch):
            assert torch.backends.cudnn.deterministic
            assert not torch.backends.cudnn.benchmark
        assert torch.backends.cudnn.benchmark == is_raced
        assert not torch.backends.cudnn.deterministic
    finally:
        torch.backends.cudnn.benchmark = False


def test_operations_that_cannot_repeat_are_refused_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with repeatable_only(torch):
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            assert torch.backends.cudnn.deterministic
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert not torch.backends.cudnn.deterministic
    finally:
        torch.use_deterministic_algorithms(False)
