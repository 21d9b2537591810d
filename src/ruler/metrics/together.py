"""All four metrics of the paper in one call."""

from typing import Any

from ruler.metrics.calibration_gap import m2
from ruler.metrics.oracle_similarity import m1
from ruler.metrics.percentile_rank import m4
from ruler.metrics.representation_shift import m3


def all_metrics(
    unlearned_forget: Any,
    unlearned_retain: Any,
    oracle_forget: Any,
    oracle_retain: Any,
    original_forget: Any = None,
) -> dict[str, float | None]:
    """What do M1, M2, M3 and M4 say about this unlearned model?

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        unlearned_retain: (m, p) retain records in the unlearned model.
        oracle_forget: (n, p) forget records in the oracle.
        oracle_retain: (m, p) retain records in the oracle.
        original_forget: (n, p) forget records in the original model; M3 needs it.

    Returns:
        A dict with keys m1, m2, m3, m4; m3 is None without ``original_forget``.

    Raises:
        InputError: As the metrics.

    Example:
        >>> records = [[1.0, 0.0], [0.0, 1.0]]
        >>> all_metrics(records, records, records, records)
        {'m1': 1.0, 'm2': 0.0, 'm3': None, 'm4': 1.0}
    """
    return {
        "m1": m1(unlearned_forget, oracle_forget),
        "m2": m2(unlearned_forget, oracle_forget, unlearned_retain, oracle_retain),
        "m3": None if original_forget is None else m3(unlearned_forget, original_forget, oracle_forget),
        "m4": m4(unlearned_forget, unlearned_retain),
    }
