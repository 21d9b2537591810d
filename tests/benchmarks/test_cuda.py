import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import cuda
from benchmarks.search import Case, make_rows
from ruler.core.types import Neighbors
from ruler.neighbors import find_neighbors

torch = pytest.importorskip("torch")
SEARCH = cuda.CudaEngine.search


@pytest.mark.gpu
def test_every_engine_is_timed_in_one_run(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "SIZES", ((60_000, 300),))
    monkeypatch.setattr("sys.argv", ["cuda", "--json", str(tmp_path / "cuda.json")])
    cuda.main()
    numbers = json.loads((tmp_path / "cuda.json").read_text())
    ours, first, *rivals = numbers["search"]
    assert numbers["machine"]["gpu"] == torch.cuda.get_device_name()
    assert [ours["engine"], first["engine"]] == ["ruler", "ruler, first pass"]
    assert ours["over_first_pass"] == pytest.approx(ours["elapsed_s"] / first["elapsed_s"])
    assert all(rival["speedup"] == pytest.approx(rival["elapsed_s"] / ours["elapsed_s"]) for rival in rivals)
    assert ours["tflops"] == pytest.approx(60_000**2 * 300 / ours["elapsed_s"] / 1e12)


@pytest.mark.parametrize("n_rows", [100, 10_000])
def test_chunks_stand_for_all_rows(n_rows, monkeypatch):
    monkeypatch.setattr(cuda, "CHUNK_ROWS", 1000)
    calls = []
    monkeypatch.setattr(cuda, "time_call", lambda torch, call, repeats: (calls.append(len(call())), (2.0, 1.0))[1])
    elapsed_s, _ = cuda.time_chunks(torch, torch.randn(n_rows, 3), "highest")
    assert calls == [min(8, -(-n_rows // 1000))]
    assert elapsed_s == (2.0 if n_rows == 100 else 2.5)


@pytest.mark.parametrize("case", cuda.KINDS[:13], ids=lambda case: case.kind)
def test_a_kind_on_a_device_lies_as_the_same_kind_of_numpy(case):
    case = replace(case, n_rows=2000, width=64)
    ours, theirs = (
        1 - find_neighbors(rows, rows, exclude_self=True).similarity
        for rows in (make_rows(case, cuda.TorchDraw(torch, "cpu")).numpy(), make_rows(case))
    )
    assert np.isfinite(ours).all()
    assert 0.4 < (np.median(ours) + 1e-12) / (np.median(theirs) + 1e-12) < 2.5


def test_every_kind_is_timed_beside_rectified_rows_and_checked(monkeypatch):
    times_s = iter([0.2, 0.3, 0.5])
    monkeypatch.setattr(cuda, "time_call", lambda torch, call: (next(times_s), 9.0))
    cases = (Case("rectified", 300, 24), Case("collapsed", 300, 24), Case("rectified", 400, 24))
    rows = list(cuda.time_kinds(cases, "cpu"))
    assert [row["over_rectified"] for row in rows] == pytest.approx([1.0, 1.5, 1.0])
    assert all(row["is_exact"] for row in rows)
    wrong = Neighbors(np.zeros((300, 1)), np.zeros((300, 1), dtype=np.int64))
    times_s = iter([0.2])
    monkeypatch.setattr(
        cuda.CudaEngine, "search", lambda engine, request: wrong if engine.dtype else SEARCH(engine, request)
    )
    assert not next(cuda.time_kinds(cases, "cpu"))["is_exact"]
