import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.scaling import CostModel, Device, Point, fit_model, measure_points, project_search, write_tables

DOCS = Path(__file__).parents[2] / "docs"


def test_the_fit_finds_the_model_behind_noisy_points():
    truth, rng = CostModel(2e-9, 3e-12, 4e-11, 0.0), np.random.default_rng(0)
    sizes = [(n, p) for n in (10_000, 50_000, 200_000) for p in (16, 128, 1024)]
    points = [Point(n, p, 1, 0.0, truth.predict(n, p) * rng.uniform(0.98, 1.02)) for n, p in sizes]
    found = fit_model(points)
    assert found.error < 0.02
    assert found.predict(1e6, 256) == pytest.approx(truth.predict(1e6, 256), rel=0.05)


def test_devices_share_the_work_and_a_sample_needs_less():
    device = Device("one", tflops=100, exact_over_first=2, read_gb_s=1)
    one, many = (project_search(1e8, 1e8, 128, device, n) for n in (1, 64))
    assert one["pflop"] == 2 * 1e16 * 128 / 1e15
    # three blocks of 2^25 rows, six pairs of them, read and multiplied one after the other
    assert one["terabytes"] == pytest.approx(6 * 2 * 2**25 * 512 / 1e12)
    assert one["hours"] == pytest.approx((one["pflop"] * 1e3 / 100 * 2 + one["terabytes"] * 1e3) / 3600)
    # 24 blocks of 2^22 rows, 300 pairs: five rounds on 64 devices, the last one not full
    assert many["terabytes"] == pytest.approx(300 * 2 * 2**22 * 512 / 1e12)
    work_hours = (one["pflop"] * 1e3 / 100 * 2 + many["terabytes"] * 1e3) / 3600
    assert many["hours"] == pytest.approx(5 * work_hours / 300)
    assert project_search(1e6, 1e8, 128, device, 1)["pflop"] == pytest.approx(one["pflop"] / 100)


def test_points_are_measured_and_threads_put_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    (point,) = measure_points([(500, 4, before + 1)])
    assert (point.n_rows, point.width, point.n_workers) == (500, 4, before + 1)
    assert point.elapsed_s > 0
    assert torch.get_num_threads() == before


def test_the_page_holds_what_was_measured(tmp_path):
    page = tmp_path / "scale.md"
    shutil.copy(DOCS / "scale.md", page)
    write_tables(json.loads((DOCS / "scale.json").read_text()), page)
    assert page.read_text() == (DOCS / "scale.md").read_text()
    assert page.read_text().count("| H200") + page.read_text().count("H200 |") >= 8


def test_measuring_keeps_what_is_known_of_devices(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    numbers = tmp_path / "scale.json"
    numbers.write_text(json.dumps({"device": {"name": "H200"}}))
    monkeypatch.setattr(scaling, "measure_points", lambda: [Point(10, 2, 1, 0.5, 0.25)])
    monkeypatch.setattr(sys, "argv", ["scaling", "--json", str(numbers)])
    scaling.main()
    written = json.loads(numbers.read_text())
    assert written["device"] == {"name": "H200"}
    assert written["points"] == [{"n_rows": 10, "width": 2, "n_workers": 1, "elapsed_s": 0.5, "cpu_s": 0.25}]
    assert written["machine"]
