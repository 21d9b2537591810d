"""A report is repeated from its inputs, and everything that differs is said."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ruler.auditing.report.files import save_report
from ruler.auditing.request import audit_folders
from ruler.auditing.seal.rerun import check_rerun
from ruler.auditing.settings import AuditSettings
from ruler.neighbors import find_neighbors


@pytest.fixture
def rows(tmp_path):
    random = np.random.default_rng(0)
    (tmp_path / "rows").mkdir()
    for side, n in (("forget", 30), ("retain", 60), ("held_out", 50)):
        np.save(tmp_path / "rows" / f"{side}.npy", random.normal(size=(n, 5)))
    return tmp_path / "rows"


@pytest.fixture
def report(rows):
    return audit_folders({"unlearned": rows}, AuditSettings(n_permutations=99))


def rerun(folder):
    return [
        (check.holds, check.message)
        for check in check_rerun(folder, search=lambda device: partial(find_neighbors, device=device))
    ]


def test_the_same_inputs_give_the_same_report(report, tmp_path):
    folder = report.save(tmp_path / "report")
    ((holds, words),) = rerun(folder)
    assert holds
    assert words == "The audit was repeated from its inputs and gives the same report, to the bit."


def test_changed_inputs_are_named_and_nothing_else_is_compared(report, rows, tmp_path):
    folder = report.save(tmp_path / "report")
    np.save(rows / "retain.npy", np.load(rows / "retain.npy")[::-1])
    assert rerun(folder) == [(False, "The inputs are not those of the report: unlearned/retain.npy changed.")]


def test_inputs_that_are_gone_are_said(report, rows, tmp_path):
    folder = report.save(tmp_path / "report")
    (rows / "forget.npy").unlink()
    ((holds, words),) = rerun(folder)
    assert holds is False
    assert words.startswith("The audit could not be repeated. ")
    assert "forget" in words


def test_numbers_and_records_that_the_inputs_do_not_give_are_named(report, tmp_path):
    metric = replace(report.metrics["m4"], value=0.25)
    forged = replace(
        report,
        reason="All is well.",
        metrics={**report.metrics, "m4": metric},
        records=report.records.assign(percentile_rank=0.25),
    )
    folder = save_report(forged, tmp_path / "report")
    records, document = rerun(folder)
    assert records == (False, "The audit gives other records than records.parquet holds.")
    assert document[0] is False
    named = document[1].removeprefix("The audit gives another report.json; other are ").rstrip(".").split(", ")
    assert {"reason", "metrics.m4.value"} <= set(named)


def test_many_differences_are_counted(report, tmp_path):
    names = ("value", "null", "p_value", "plain_value", "aligned_value", "reference_error")
    metric = replace(report.metrics["m4"], **dict.fromkeys(names, 0.5))
    folder = save_report(replace(report, reason="Fine.", metrics={"m4": metric}), tmp_path / "report")
    ((holds, words),) = rerun(folder)
    assert holds is False
    assert words.count(",") == 4
    assert words.endswith(" and 2 more.")
