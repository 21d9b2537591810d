import json
import sys

import numpy as np
import pytest
from tests.benchmarks.allocation import prepare_allocation

from benchmarks import cuda, measure, peers, search, shards, studies
from benchmarks.__main__ import main
from ruler.core import __version__
from ruler.core.errors import RulerError


@pytest.mark.parametrize("kind", ["diffuse", *(case.kind for case in search.KINDS)])
def test_every_engine_finds_the_same_neighbours(kind):
    rows = search.make_rows(search.Case(kind, 400, 24))
    ours = search.ENGINES["ruler"](rows)()
    value, _ = search.ENGINES["plain float64 loop"](rows)()
    np.testing.assert_allclose(ours.similarity[:, 0], value, rtol=0, atol=1e-12)
    similarity, _ = search.ENGINES["faiss IndexFlatIP"](rows)()
    np.testing.assert_allclose(similarity[:, 1], value, rtol=0, atol=1e-5)
    distance, _ = search.ENGINES["scikit-learn brute"](rows)()
    np.testing.assert_allclose(1 - distance[:, 0], value, rtol=0, atol=1e-5)


def test_memory_is_measured_beyond_what_was_there():
    found = measure.measure_apart(prepare_allocation, repeats=2)
    assert 150 < found.extra_mb < 300
    assert found.elapsed_s > 0


def test_bench_writes_its_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "SIZES", (search.Case("diffuse", 300, 8),))
    monkeypatch.setattr(search, "KINDS", ())
    monkeypatch.setattr(search, "LARGE", ())
    monkeypatch.setattr(peers, "QUICK_SETS", ())
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--quick", "--json", str(tmp_path / "bench.json")])
    main()
    numbers = json.loads((tmp_path / "bench.json").read_text())
    assert numbers["search"][0]["engine"] == "ruler"
    assert numbers["machine"]["cores"] >= 1
    assert numbers["machine"]["ruler"].startswith(__version__)


@pytest.mark.parametrize("with_gpu", [False, True])
def test_the_whole_bench_holds_shards_and_on_a_gpu_studies(tmp_path, monkeypatch, capsys, with_gpu):
    monkeypatch.setattr(search, "SIZES", ())
    monkeypatch.setattr(search, "KINDS", ())
    monkeypatch.setattr(search, "LARGE", ())
    monkeypatch.setattr(peers, "SETS", ())
    monkeypatch.setattr(shards, "time_shards", lambda: shards.ShardsTiming(3_000_000, 128, 9, 5, 110.0, 50.0))
    monkeypatch.setattr(measure, "has_cuda", lambda: with_gpu)
    monkeypatch.setattr(cuda, "time_on_cuda", lambda: iter(()))
    machine = {"processor": "abacus", "cores": 2} | ({"gpu": "loom"} if with_gpu else {})
    monkeypatch.setattr(measure, "describe_machine", lambda has_gpu: machine)

    def time_studies(names, device, out):
        if "minibatch" in names:
            raise RulerError("its data is not there")
        yield studies.StudyTiming(names[0], device, 1800, 40.0)

    monkeypatch.setattr(studies, "time_studies", time_studies)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "peers", "--json", str(tmp_path / "bench.json")])
    main()
    shown = capsys.readouterr().out
    numbers = json.loads((tmp_path / "bench.json").read_text())
    assert "audit of 3,000,000 rows in shards: 110 s" in shown
    assert numbers["shards"][0]["peak_mb"] == 50.0
    assert len(numbers["studies"]) == (5 if with_gpu else 0)
    assert ("ruler reproduce primary: 1,800 cells in 40 s" in shown) == with_gpu
    assert ("ruler reproduce minibatch: left out. its data is not there" in shown) == with_gpu
    assert ("gpu" in numbers["machine"]) == with_gpu


def test_an_unknown_benchmark_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "precison"])
    with pytest.raises(SystemExit, match="Did you mean 'precision'"):
        main()
