import json

import pytest

from benchmarks import cuda

torch = pytest.importorskip("torch")


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
