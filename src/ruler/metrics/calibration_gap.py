"""M2, signed calibration gap: are forget records further from the oracle than retain records are?"""

from typing import Any

import numpy as np

from ruler.core.types import FloatArray
from ruler.metrics.oracle_similarity import compare_rows, oracle_similarity


def calibration_gap(unlearned_forget: Any, oracle_forget: Any, unlearned_retain: Any, oracle_retain: Any) -> FloatArray:
    """How much more similar to the oracle is each forget record than the median retain record?

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        oracle_forget: (n, p) the same records in the oracle.
        unlearned_retain: (m, p) retain records in the unlearned model.
        oracle_retain: (m, p) the same records in the oracle.

    Returns:
        (n,) gaps in [-2, 2], one a forget record; their mean is M2.

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> axes = np.eye(2)
        >>> calibration_gap(axes, axes[[0, 0]], axes, axes).tolist()
        [0.0, -1.0]
    """
    forget = oracle_similarity(unlearned_forget, oracle_forget)
    retain = compare_rows(unlearned_retain, oracle_retain, ("unlearned_retain", "oracle_retain"))
    return subtract_baseline(forget, retain)


def subtract_baseline(similarity: FloatArray, retain_similarity: FloatArray) -> FloatArray:
    """Similarities to the oracle less the median over retain records: (n,) gaps from similarities that are known.

    Example:
        >>> subtract_baseline(np.array([0.5, 1.0]), np.array([0.9, 1.0, 0.8])).round(3).tolist()
        [-0.4, 0.1]
    """
    gap: FloatArray = similarity - np.median(retain_similarity)
    return gap


def m2(unlearned_forget: Any, oracle_forget: Any, unlearned_retain: Any, oracle_retain: Any) -> float:
    """On average, do forget records sit as close to the oracle as retain records do? (M2, Eq. 3)

    M2 = M1 - median over retain records of sim(unlearned, oracle). The paper reads 0 as erased, negative as residual
    memorisation, positive as over-correction. A mean minus a median is not 0 for a skewed distribution even when
    unlearning was perfect, so the paper's null does not hold its error rate.

    Args:
        unlearned_forget: (n, p) forget records in the unlearned model.
        oracle_forget: (n, p) the same records in the oracle.
        unlearned_retain: (m, p) retain records in the unlearned model.
        oracle_retain: (m, p) the same records in the oracle.

    Returns:
        A number in [-2, 2].

    Raises:
        InputError: As `cosine_similarity`.

    Example:
        >>> axes = np.eye(2)
        >>> m2(axes, axes[[0, 0]], axes, axes)
        -0.5
    """
    return float(calibration_gap(unlearned_forget, oracle_forget, unlearned_retain, oracle_retain).mean())
