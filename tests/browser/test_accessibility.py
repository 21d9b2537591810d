"""What axe-core finds in every page that RULER writes: nothing."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.auditing.report.factory import make_report

import ruler
from ruler.paper.compare.leaderboard import make_leaderboard

pytestmark = pytest.mark.browser

SCRIPT = """
const done = arguments[arguments.length - 1];
axe.run().then(
  (found) => done(found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html).join(" "))),
  (error) => done(["axe failed: " + error]),
);
"""


def find_faults(page, axe):
    page.evaluate(axe)
    return page.evaluate(f"() => new Promise((done) => (function () {{ {SCRIPT} }})(done))")


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    reports = {
        "before": make_report("inconclusive", n_forget=6, n_groups=2, n_layers=2),
        "after": make_report("residual", n_forget=6, seed=1),
    }
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(120, 3)), columns=["a", "b", "c"])
    frame.assign(sick=(frame["a"] > 0).astype(int)).to_csv(folder / "own.csv", index=False)
    for name, is_chosen in (("compared", False), ("chosen", True)):
        ruler.compare(
            folder / "own.csv",
            target="sick",
            methods={"retrain": {}, "fine_tuning": {"epochs": 1, "learning_rate": [1e-4, 1e-3]}, "ssd": {}},
            choose=is_chosen,
            seeds=1,
            training={"epochs": 2},
            out=folder / name,
            jobs=1,
        )
    return {
        "report": reports["before"].save(folder / "before") / "report.html",
        "changes": ruler.compare_reports(reports).save(folder / "changes.html"),
        "compare": folder / "chosen" / "compare.html",
        "leaderboard": make_leaderboard([folder / "compared", folder / "chosen"], folder / "board"),
    }


@pytest.mark.parametrize("name", ["report", "changes", "compare", "leaderboard"])
def test_in_chromium(open_report, axe, pages, name):
    page = open_report(pages[name])
    assert find_faults(page, axe) == []
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    assert find_faults(page, axe) == []


def test_in_firefox(firefox, axe, pages):
    firefox.open(pages["report"], width=500)
    firefox.run(axe)
    assert firefox.run(SCRIPT, is_async=True) == []
