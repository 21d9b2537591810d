"""A report as the flat numbers that trackers and logs take."""

import math

from ruler.auditing.findings import Report
from ruler.auditing.verdict import count_flagged

_FIELDS = ("value", "null", "effect", "p_value")


def list_numbers(report: Report, prefix: str = "ruler") -> dict[str, float]:
    """Whether the verdict is erased, how much remains, and the numbers of every contrast.

    Numbers that could not be computed, or are infinite, are absent.

    Args:
        report: Of an audit.
        prefix: What the names begin with.

    Returns:
        ``ruler/is_erased`` (1 or 0) and ``ruler/n_flagged``; ``ruler/remaining/value``, ``low`` and ``high`` of the
        whole, and the same of what the model says and what its layers hold, as in ``ruler/outputs/remaining/value`` and
        ``ruler/layers/remaining/value``; of each contrast ``ruler/m2/effect`` and the like, and what remains by scale,
        as in ``ruler/loss/remaining/original``; ``ruler/damage/similarity`` and ``ruler/damage/skill``; and numbers of
        the models' answers such as ``ruler/unlearned/forget_accuracy``.

    Example:
        >>> import numpy as np, ruler
        >>> rows = np.random.default_rng(0).normal(size=(60, 4))
        >>> numbers = list_numbers(ruler.audit((rows[:20], rows[20:])))
        >>> numbers["ruler/is_erased"], sorted(numbers)
        (0.0, ['ruler/is_erased', 'ruler/m4/value', 'ruler/n_flagged'])
    """
    found: dict[str, float | None] = {"is_erased": report.verdict == "erased", "n_flagged": count_flagged(report)}
    wholes = {"": report.remaining, "outputs/": report.outputs.remaining, "layers/": report.layers.remaining}
    for name, one in wholes.items():
        if one is not None:
            found |= {f"{name}remaining/{field}": getattr(one, field) for field in ("value", "low", "high")}
    for name, metric in report.metrics.items():
        found |= {f"{name}/{field}": getattr(metric, field) for field in _FIELDS}
        found |= {f"{name}/remaining/{scale}": each.value for scale, each in metric.remaining.items()}
    if report.damage is not None:
        found |= {"damage/similarity": report.damage.similarity, "damage/skill": report.damage.skill}
    for model, answers in report.answers.items():
        found |= {f"{model}/{name}": number for name, number in answers.items()}
    return {
        f"{prefix}/{name}": float(value) for name, value in found.items() if value is not None and math.isfinite(value)
    }
