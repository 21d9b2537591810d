"""A report as the flat numbers that trackers and logs take."""

import math

from ruler.auditing.findings import Report
from ruler.auditing.verdict import count_flagged

_FIELDS = ("value", "null", "effect", "p_value", "share_left")


def list_numbers(report: Report, prefix: str = "ruler") -> dict[str, float]:
    """Whether the verdict is erased, and the numbers of every contrast; those that could not be computed are absent.

    Args:
        report: Of an audit.
        prefix: What the names begin with.

    Returns:
        ``ruler/is_erased`` (1 or 0), ``ruler/n_flagged``, ``ruler/m2/effect`` and the like, ``ruler/damage/similarity``
        and ``ruler/damage/skill``, and output-level numbers such as ``ruler/unlearned/forget_accuracy``.

    Example:
        >>> import numpy as np, ruler
        >>> rows = np.random.default_rng(0).normal(size=(60, 4))
        >>> numbers = list_numbers(ruler.audit((rows[:20], rows[20:])))
        >>> numbers["ruler/is_erased"], sorted(numbers)
        (0.0, ['ruler/is_erased', 'ruler/m4/value', 'ruler/n_flagged'])
    """
    found: dict[str, float | None] = {"is_erased": report.verdict == "erased", "n_flagged": count_flagged(report)}
    for name, metric in report.metrics.items():
        found |= {f"{name}/{field}": getattr(metric, field) for field in _FIELDS}
    if report.damage is not None:
        found |= {"damage/similarity": report.damage.similarity, "damage/skill": report.damage.skill}
    for model, outputs in report.outputs.items():
        found |= {f"{model}/{name}": number for name, number in outputs.items()}
    return {
        f"{prefix}/{name}": float(value) for name, value in found.items() if value is not None and math.isfinite(value)
    }
