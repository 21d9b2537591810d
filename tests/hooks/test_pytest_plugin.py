import dataclasses
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import ruler
from ruler.hooks.pytest_plugin import assert_erased

pytest_plugins = ["pytester"]


def test_an_erased_verdict_passes_and_any_other_fails_with_the_summary(erased, residual):
    assert assert_erased(erased) is erased
    with pytest.raises(AssertionError, match=r"the verdict must be erased; got residual\.\n\nRULER audit: RESIDUAL"):
        assert_erased(residual)


def test_an_inconclusive_verdict_passes_only_if_allowed(rows):
    with pytest.raises(AssertionError, match="got inconclusive"):
        assert_erased((rows[:50], rows[50:]))
    assert assert_erased((rows[:50], rows[50:]), allow_inconclusive=True).verdict == "inconclusive"


def test_a_found_trace_fails_even_then(residual):
    with pytest.raises(AssertionError, match="got residual"):
        assert_erased(residual, allow_inconclusive=True)


def test_a_record_that_stands_out_fails_even_then(report):
    records = report.records.copy()
    records.loc[0, "finding"] = "nearer to retain records than held-out records"
    flagged = dataclasses.replace(report, records=records)
    assert assert_erased(report, allow_inconclusive=True) is report
    with pytest.raises(AssertionError, match="got inconclusive"):
        assert_erased(flagged, allow_inconclusive=True)


def test_a_model_is_audited(records):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    with pytest.raises(AssertionError, match=r"\nLoss, Readout, M4 percentile rank\."):
        assert_erased(model, **records)


def test_a_report_is_not_audited_again(report):
    with pytest.raises(TypeError, match="a report takes no further arguments; got oracle"):
        assert_erased(report, oracle=None)


def test_the_fixture_saves_reports_where_asked(pytester, rows):
    pytester.makepyfile(
        test_model="""
        import numpy, pytest

        rows = numpy.random.default_rng(0).normal(size=(60, 4))

        @pytest.mark.parametrize("n", [20])
        def test_it_forgot(assert_erased, n):
            assert_erased((rows[:n], rows[n:]), allow_inconclusive=True)
            assert_erased((rows[:n], rows[n:]))
        """
    )
    is_found = bool(entry_points(group="pytest11", name="ruler"))  # not in an older installation of this folder
    plugin = () if is_found else ("-p", "ruler.hooks.pytest_plugin")
    result = pytester.runpytest_subprocess(*plugin, "--ruler-reports", "reports")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: the verdict must be erased; got inconclusive."])
    saved = sorted(path.name for path in (pytester.path / "reports").iterdir())
    assert saved == ["test_model.py-test_it_forgot-20", "test_model.py-test_it_forgot-20-2"]
    assert ruler.Report.load(pytester.path / "reports" / saved[1]).verdict == "inconclusive"


def test_pytest_finds_the_plugin_where_the_package_is_installed():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ruler": "ruler.hooks.pytest_plugin"}


def test_the_plugin_loads_next_to_nothing(run_python):
    loaded = run_python(
        "import pytest, sys; before = set(sys.modules); import ruler.hooks.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    ).split()
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert foreign == {"ruler"}
    assert len([name for name in loaded if name.startswith("ruler")]) <= 5
