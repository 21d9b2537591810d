"""The pytest plugin: a fixture `assert_erased` for pipelines that must not ship a model that remembers.

pytest loads this file wherever RULER is installed, so it imports nothing of ours before a test asks for it.
"""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ruler.auditing.findings import Report

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --ruler-reports."""
    parser.getgroup("ruler").addoption(
        "--ruler-reports", metavar="DIR", help="save the report of every assert_erased in a folder of DIR"
    )


@pytest.fixture(name="assert_erased")
def give_assert_erased(request: pytest.FixtureRequest) -> "Callable[..., Report]":
    """`assert_erased` that also saves its report where --ruler-reports says."""
    folder = request.config.getoption("--ruler-reports")
    name = _NOT_IN_NAMES.sub("-", request.node.nodeid).strip("-")
    numbers = itertools.count(1)

    def check(unlearned: Any, *, allow_inconclusive: bool = False, **given: Any) -> "Report":
        __tracebackhide__ = True
        report = make_report(unlearned, **given)
        if folder is not None:
            number = next(numbers)
            report.save(Path(folder) / (name if number == 1 else f"{name}-{number}"))
        return assert_erased(report, allow_inconclusive=allow_inconclusive)

    return check


def assert_erased(unlearned: Any, *, allow_inconclusive: bool = False, **given: Any) -> "Report":
    """Fail unless the verdict of an audit is erased; the failure shows the summary of the report.

    Args:
        unlearned: A torch model, which `ruler.audit_models` audits; embeddings or their folder, which `ruler.audit`
            audits; or a `ruler.Report`.
        allow_inconclusive: Pass if the evidence does not settle it, too, unless a record, a person or an attack is
            flagged.
        **given: What that function takes besides: oracle, original, reference, forget, retain, held_out, settings, ...

    Returns:
        The report.

    Raises:
        AssertionError: Another verdict.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(60, 4))
        >>> assert_erased((rows[:20], rows[20:]), allow_inconclusive=True).verdict
        'inconclusive'
    """
    __tracebackhide__ = True
    report = make_report(unlearned, **given)
    from ruler.auditing.verdict import is_flagged

    is_allowed = allow_inconclusive and report.verdict == "inconclusive" and not is_flagged(report)
    if report.verdict != "erased" and not is_allowed:
        raise AssertionError(f"the verdict must be erased; got {report.verdict}.\n\n{report}")
    return report


def make_report(unlearned: Any, **given: Any) -> "Report":
    """The report of an audit of a model or of embeddings; a report as it is.

    Raises:
        TypeError: A report, and something to audit it with.
    """
    from ruler.auditing.audit import audit
    from ruler.auditing.findings import Report
    from ruler.auditing.models import audit_models

    if isinstance(unlearned, Report):
        if given:
            raise TypeError(f"a report takes no further arguments; got {', '.join(given)}. Leave them out.")
        return unlearned
    is_model = hasattr(unlearned, "state_dict") and hasattr(unlearned, "parameters")
    return audit_models(unlearned, **given) if is_model else audit(unlearned, **given)
