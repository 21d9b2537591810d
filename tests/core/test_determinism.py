import os
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ruler.core.determinism import (
    fixed_algorithms,
    full_precision,
    repeatable_only,
    seed_everything,
    seeded,
    tensor_cores,
)
from ruler.neighbors import find_neighbors

torch = pytest.importorskip("torch")
ROWS = np.random.default_rng(0).normal(size=(300, 8))
NEEDS_NEW = pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has one precision for all backends"
)


FULL = {"ieee", "none"}


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    yield
    if hasattr(torch.backends, "fp32_precision"):
        for backend in (torch.backends, torch.backends.cudnn, *list_parts()):
            backend.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a GPU were in use: its settings can be read and written anywhere."""
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)


def list_parts() -> list[Any]:
    backends = torch.backends
    return [
        *(backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn),
        *(backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn),
    ]


def read_words() -> list[str]:
    return [part.fp32_precision for part in (torch.backends, torch.backends.cudnn, *list_parts())]


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
        assert {torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision} <= FULL
        with tensor_cores(torch):
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        assert torch.backends.cuda.matmul.fp32_precision in FULL
        found = find_neighbors(ROWS, ROWS, exclude_self=True)
    assert backend.fp32_precision == "tf32"
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_array_equal(found.similarity, expected.similarity)


@pytest.mark.usefixtures("cuda")
def test_convolutions_are_as_precise_as_products() -> None:
    torch.backends.cudnn.allow_tf32 = True
    with full_precision(torch):
        assert read_convolutions() == {"ieee"}
        with full_precision(torch):
            pass
        assert read_convolutions() == {"ieee"}
    assert torch.backends.cudnn.allow_tf32


def read_convolutions() -> set[str]:
    cudnn = torch.backends.cudnn
    if not hasattr(cudnn, "conv"):
        return {"tf32" if cudnn.allow_tf32 else "ieee"}
    return {cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision}


@NEEDS_NEW
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("word", ["ieee", "tf32"])
def test_every_word_of_the_caller_is_put_back_and_followed_where_it_was(place: int, word: str) -> None:
    chosen = (torch.backends, torch.backends.cudnn, *list_parts())[place]
    chosen.fp32_precision = word
    before = read_words()
    with full_precision(torch), full_precision(torch):
        assert read_convolutions() == {"ieee"}
        assert {part.fp32_precision for part in list_parts()} <= FULL
        with tensor_cores(torch):
            pass
    assert read_words() == before
    chosen.fp32_precision = "none"
    torch.backends.fp32_precision = "ieee" if word == "tf32" else "tf32"
    assert chosen.fp32_precision == torch.backends.fp32_precision


@NEEDS_NEW
def test_later_words_of_the_caller_are_followed_as_if_nothing_had_been_held() -> None:
    """In processes of their own: torch's first settings are gone once a test has changed them."""
    held = """
torch.cuda.is_initialized = lambda: True
with full_precision(torch), full_precision(torch), tensor_cores(torch):
    pass
with full_precision(torch), tensor_cores(torch), full_precision(torch):
    pass
"""
    later = """
parts = [torch.backends.cuda.matmul]
for whole in (torch.backends.cudnn, torch.backends.mkldnn):
    parts += [getattr(whole, name) for name in ("matmul", "conv", "rnn") if hasattr(whole, name)]
for word in ("ieee", "tf32", "ieee"):
    torch.backends.fp32_precision = word
    print(word, *(part.fp32_precision for part in parts))
"""
    frozen = """
# Where no GPU is in use its settings are not touched: a caller may have frozen them.
torch.cuda.is_initialized = lambda: False
torch.backends.fp32_precision = "none"
torch.backends.disable_global_flags()
with full_precision(torch), repeatable_only(torch):
    pass
"""
    untouched, found = say_in_new_processes(later, held + later + frozen)
    assert found == untouched
    assert "tf32 tf32 tf32 tf32" in found


def say_in_new_processes(*programs: str) -> list[str]:
    """What each program prints: forks of one process that has loaded torch and done nothing with it."""
    code = f"""
import os, sys, torch
from ruler.core.determinism import full_precision, repeatable_only, tensor_cores
for program in {programs!r}:
    if os.fork() == 0:
        exec(program)
        sys.stdout.flush()
        os._exit(0)
    assert os.wait()[1] == 0
    print("end", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.split("end\n")[:-1]


def test_another_one_tightens_what_was_loosened_and_leaves_nothing_loose() -> None:
    other = full_precision(torch)
    with full_precision(torch), tensor_cores(torch):
        other.__enter__()
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "highest"
    other.__exit__(None, None, None)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_gpu_that_is_first_used_while_others_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = fixed_algorithms(torch), fixed_algorithms(torch)
    first.__enter__()
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    second.__enter__()
    assert torch.backends.cudnn.deterministic
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    assert not torch.backends.cudnn.deterministic


@pytest.mark.usefixtures("cuda")
def test_an_entry_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(torch, "use_deterministic_algorithms", refuse)
        with pytest.raises(KeyboardInterrupt):
            repeatable_only(torch).__enter__()
    assert not torch.backends.cudnn.deterministic
    with repeatable_only(torch):
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic


@pytest.mark.usefixtures("cuda")
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


@pytest.mark.usefixtures("cuda")
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


def test_products_on_a_gpu_find_their_workspace_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with repeatable_only(torch):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")


def test_a_torch_with_the_older_interface_alone() -> None:
    """As 2.4 has it, with a GPU in use and TF32 wherever it can be."""
    word = ["high"]
    cudnn = SimpleNamespace(allow_tf32=True, benchmark=True, deterministic=False)
    matmul = SimpleNamespace(allow_bf16_reduced_precision_reduction=True)
    old = SimpleNamespace(
        backends=SimpleNamespace(cudnn=cudnn, cuda=SimpleNamespace(matmul=matmul), mkldnn=SimpleNamespace()),
        cuda=SimpleNamespace(is_initialized=lambda: True),
        get_float32_matmul_precision=lambda: word[-1],
        set_float32_matmul_precision=word.append,
    )
    with full_precision(old), fixed_algorithms(old):
        assert (word[-1], cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic) == ("highest", False, False, True)
        assert not matmul.allow_bf16_reduced_precision_reduction
        with tensor_cores(old):
            assert word[-1] == "high"
        assert word[-1] == "highest"
    assert (word[-1], cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic) == ("high", True, True, False)
    assert matmul.allow_bf16_reduced_precision_reduction


torch = pytest.importorskip("torch")


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
